package entry

import (
	"io"
	"sync"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/bothy-dev/bothy/guest/abi"
)

// spliceSize is the size of each read and write, in bytes.
const spliceSize = 256 << 10

var spliceBuffers = sync.Pool{New: func() any { return new([spliceSize]byte) }}

// splicing lets process 1 copy between descriptors inside the kernel; see abi.PrctlSplice.
func splicing(prctl kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if args[0].Int() != abi.PrctlSplice || !isProcessOne(t) {
			return prctl(t, number, args)
		}
		n, err := splice(t, args[1].Int(), args[2].Int(), args[3].Int64())
		return uintptr(n), nil, err
	}
}

// splice copies up to limit bytes. When it returns without an error, everything read from the
// source has been written to the destination.
func splice(t *kernel.Task, from, to int32, limit int64) (int64, error) {
	in, out := t.GetFile(from), t.GetFile(to)
	if in != nil {
		defer in.DecRef(t)
	}
	if out != nil {
		defer out.DecRef(t)
	}
	if in == nil || out == nil || !in.IsReadable() || !out.IsWritable() {
		return 0, linuxerr.EBADF
	}
	p := splicer{t: t, in: in, out: out}
	if err := p.open(); err != nil {
		return 0, err
	}
	defer p.close()
	for p.done < limit {
		n, err := p.some(limit - p.done)
		p.done += n
		switch {
		case err == io.EOF || err == nil && n == 0:
			return p.done, nil
		case err == nil && !t.Interrupted():
		case p.done > 0 && (err == nil || isInterrupt(err)):
			return p.done, nil
		default:
			return 0, linuxerr.ConvertIntr(err, linuxerr.ERESTARTSYS)
		}
	}
	return p.done, nil
}

func isInterrupt(err error) bool { return linuxerr.Equals(linuxerr.ErrInterrupted, err) }

// splicer waits for both ends.
type splicer struct {
	t                  *kernel.Task
	in, out            *vfs.FileDescription
	readable, writable waiter.Entry
	mayRead, mayWrite  chan struct{}
	done               int64
}

func (p *splicer) open() error {
	p.readable, p.mayRead = waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventHUp | waiter.EventErr)
	p.writable, p.mayWrite = waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventHUp | waiter.EventErr)
	if err := p.in.EventRegister(&p.readable); err != nil {
		return err
	}
	err := p.out.EventRegister(&p.writable)
	if err != nil {
		p.in.EventUnregister(&p.readable)
	}
	return err
}

func (p *splicer) close() {
	p.in.EventUnregister(&p.readable)
	p.out.EventUnregister(&p.writable)
}

// some waits for data and copies at most one piece. It holds no buffer while it waits.
func (p *splicer) some(limit int64) (int64, error) {
	for {
		n, err := p.piece(limit)
		if !linuxerr.Equals(linuxerr.ErrWouldBlock, err) {
			return n, err
		}
		if err := p.t.Block(p.mayRead); err != nil {
			return 0, err
		}
	}
}

func (p *splicer) piece(limit int64) (int64, error) {
	buf := spliceBuffers.Get().(*[spliceSize]byte)
	defer spliceBuffers.Put(buf)
	n, err := p.in.Read(p.t, usermem.BytesIOSequence(buf[:min(limit, spliceSize)]), vfs.ReadOptions{})
	if n == 0 {
		return 0, err
	}
	for rest := buf[:n]; len(rest) > 0; {
		w, err := p.out.Write(p.t, usermem.BytesIOSequence(rest), vfs.WriteOptions{})
		rest = rest[w:]
		if linuxerr.Equals(linuxerr.ErrWouldBlock, err) {
			err = p.t.Block(p.mayWrite)
		}
		if err != nil && len(rest) > 0 {
			return n - int64(len(rest)), p.giveBack(int64(len(rest)), err)
		}
	}
	return n, nil
}

// giveBack puts what could not be written back into the source.
func (p *splicer) giveBack(n int64, err error) error {
	if _, serr := p.in.Seek(p.t, -n, linux.SEEK_CUR); serr != nil && isInterrupt(err) {
		return linuxerr.EIO
	}
	return err
}
