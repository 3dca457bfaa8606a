package command

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
)

// Exit says how a command ended.
type Exit struct {
	// Code is the command's own, or 128 plus the signal.
	Code   int
	Signal syscall.Signal
	// Duration is the time from start to exit.
	Duration  time.Duration
	TimedOut  bool
	OOMKilled bool
	// Hint says what to do about the limit that killed the command, or that it reached.
	Hint string
}

// Process is a command that was started.
type Process struct {
	m       *Manager
	spec    Spec
	id      string // of the marker
	pid     int
	started time.Time
	out     *output
	done    chan struct{} // closed when the exit and the output are complete

	// pending counts what must happen before the command is done: its exit,
	// and the end of each of its outputs.
	pending  atomic.Int32
	finished sync.Once
	// reading counts outputs that have bytes on their way.
	reading atomic.Int32

	mu       sync.Mutex
	timer    *time.Timer
	isExited bool
	exit     Exit

	stdin    *os.File // or nil
	terminal *os.File // or nil
	outputs  []source
	inputMu  sync.Mutex // keeps writes in order
}

// PID returns the process id.
func (p *Process) PID() int { return p.pid }

// Spec returns the request.
func (p *Process) Spec() *Spec { return &p.spec }

// User returns who runs it, or nil.
func (p *Process) User() *account.User { return p.spec.User }

// Done is closed when the command has ended and its output is complete.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the command's first process lives.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.isExited
}

// Exit returns how the command ended, and false while it runs.
func (p *Process) Exit() (Exit, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit, p.isExited
}

// Output returns the offsets of the first byte held and after the last.
func (p *Process) Output() (start, end int64) { return p.out.bounds() }

// Attach follows the output from an offset, or, if it is negative, from now.
func (p *Process) Attach(from int64) *Reader { return p.out.attach(from) }

// begin starts all that happens in parallel with the command.
func (p *Process) begin(io *stdio) {
	for _, o := range io.outputs {
		go p.pump(o)
	}
	if len(io.input) > 0 {
		go func() {
			if p.Write(context.Background(), io.input) == nil && p.spec.Input != nil {
				p.CloseInput()
			}
		}()
	}
	if p.spec.Timeout > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.isExited {
			p.timer = time.AfterFunc(p.spec.Timeout, p.timeout)
		}
	}
}

// pump reads one output of the command into its buffer.
func (p *Process) pump(s source) {
	defer func() {
		if !p.complete() && p.pending.Load() == 1 && p.Running() {
			p.m.await(p)
		}
		if s.stream != Terminal { // the terminal is closed with the command
			// The waiter for the end comes first.
			runtime.Gosched()
			s.file.Close()
		}
		p.m.rest()
	}()
	rc, err := s.file.SyscallConn()
	if err != nil {
		return
	}
	var f flood
	for {
		buf, n := p.read(rc, &f)
		if buf == nil {
			return
		}
		if n > 0 {
			f.count(n, rc)
			p.out.append(s.stream, buf[:n])
		}
		p.m.buffers.Put(buf)
		p.reading.Add(-1)
		if n <= 0 {
			return
		}
	}
}

// read waits for bytes, and takes a buffer only when there are some: a quiet
// command costs no memory. With a buffer it also returns one count of
// p.reading. It returns no buffer if the file was closed meanwhile.
func (p *Process) read(rc syscall.RawConn, f *flood) (buf *[segmentSize]byte, n int) {
	_ = rc.Read(func(fd uintptr) bool {
		p.reading.Add(1)
		buf = p.m.buffers.Get().(*[segmentSize]byte)
		n = tryRead(int(fd), buf[:])
		if n == again && f.on {
			time.Sleep(floodPause)
			n = tryRead(int(fd), buf[:])
		}
		if n != again {
			return true
		}
		p.m.buffers.Put(buf)
		buf = nil
		p.reading.Add(-1)
		return false
	})
	return buf, n
}

// again is tryRead's result if there is nothing to read yet.
const again = -2

// tryRead returns how many bytes it read, 0 at the end, or a negative number.
func tryRead(fd int, buf []byte) int {
	for {
		n, err := unix.Read(fd, buf)
		switch err {
		case unix.EINTR:
		case unix.EAGAIN:
			return again
		default:
			return n
		}
	}
}

// flood detects a command that writes very much. Its output is then collected in a larger pipe
// for a moment each time: if context switches are expensive, reading each small piece would cost
// many times as much.
type flood struct {
	since  time.Time
	bytes  int
	on     bool
	narrow bool // the pipe cannot be made larger
}

const (
	floodWindow = 10 * time.Millisecond
	floodBytes  = 64 << 10 // in a window
	floodPipe   = 1 << 20
	floodPause  = time.Millisecond
)

// count is called after a read of n bytes.
func (f *flood) count(n int, rc syscall.RawConn) {
	if f.bytes += n; f.bytes < floodBytes || f.narrow {
		return
	}
	now := time.Now()
	was := f.on
	f.on = now.Sub(f.since) <= floodWindow
	f.since, f.bytes = now, 0
	if f.on && !was {
		rc.Control(func(fd uintptr) {
			got, err := unix.FcntlInt(fd, unix.F_SETPIPE_SZ, floodPipe)
			f.narrow = err != nil || got < floodPipe
		})
		f.on = !f.narrow
	}
}

// exited is called when the command's first process has been reaped, with m.mu
// held.
func (p *Process) exited(status unix.WaitStatus) {
	p.mu.Lock()
	p.isExited = true
	p.exit.Duration = time.Since(p.started)
	p.exit.Code = status.ExitStatus()
	if status.Signaled() {
		p.exit.Signal = status.Signal()
		p.exit.Code = 128 + int(p.exit.Signal)
	} else if p.exit.Code != 0 && p.exit.Hint == "" {
		p.exit.Hint = fullHint()
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	if !p.complete() {
		time.AfterFunc(p.m.cfg.Linger, p.linger)
	}
}

// linger ends the command although processes that it left behind keep its output open, unless
// bytes are in flight.
func (p *Process) linger() {
	if p.reading.Load() > 0 || slices.ContainsFunc(p.outputs, source.ready) {
		time.AfterFunc(p.m.cfg.Linger, p.linger)
		return
	}
	p.finish()
}

// complete counts one completed thing, and reports whether it was the last.
func (p *Process) complete() bool {
	if p.pending.Add(-1) > 0 {
		return false
	}
	p.finish()
	return true
}

func (p *Process) finish() {
	p.finished.Do(func() {
		p.out.close()
		close(p.done)
		// Closing also ends writes that wait for a reader.
		if p.stdin != nil {
			p.stdin.Close()
		}
		if p.terminal != nil {
			p.terminal.Close()
		}
	})
}

// busy reports whether someone still follows the output.
func (p *Process) busy() bool {
	select {
	case <-p.done:
	default:
		return true
	}
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	return len(p.out.readers) > 0
}

// timeout ends a command whose time is up.
func (p *Process) timeout() {
	p.mark(func(e *Exit) {
		e.TimedOut = true
		e.Hint = "The command ran longer than its time-out of " + p.spec.Timeout.String() +
			"; give it more time, or run it in the background."
	})
	p.Kill()
}

// mark changes the recorded exit, unless the command has ended.
func (p *Process) mark(f func(*Exit)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isExited {
		f(&p.exit)
	}
	return !p.isExited
}

// Write gives the command input. It waits until the command has taken it, or
// ctx ends.
func (p *Process) Write(ctx context.Context, b []byte) error {
	p.inputMu.Lock()
	defer p.inputMu.Unlock()
	f := p.stdin
	if p.terminal != nil {
		f = p.terminal
	}
	if f == nil {
		return bothy.Errorf(bothy.CodeConflict, "process %d has no open input", p.pid).
			WithHint("Start it with an open input; after the end of input nothing more can be written.")
	}
	stop := context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })
	_, err := f.Write(b)
	if !stop() {
		f.SetWriteDeadline(time.Time{})
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EIO) {
		return bothy.Errorf(bothy.CodeConflict, "process %d has closed its input", p.pid).Because(err)
	}
	return err
}

// CloseInput gives the command the end of its input. A terminal has none: it
// is ignored there.
func (p *Process) CloseInput() {
	p.inputMu.Lock()
	defer p.inputMu.Unlock()
	if p.stdin != nil {
		p.stdin.Close()
	}
}

// Resize sets the size of the command's terminal.
func (p *Process) Resize(size Size) error {
	if p.terminal == nil {
		return bothy.Errorf(bothy.CodeConflict, "process %d has no terminal", p.pid)
	}
	rc, err := p.terminal.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := rc.Control(func(fd uintptr) { err = setSize(int(fd), size) }); cerr != nil {
		return bothy.Errorf(bothy.CodeConflict, "the terminal of process %d is closed", p.pid)
	}
	return err
}
