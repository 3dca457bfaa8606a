package gvisor

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// tarPipe carries a tar from the sentry to its writer.
type tarPipe struct {
	// in is the sentry's end.
	in   *os.File
	out  *os.File
	done chan error
	// copied is how many bytes have come.
	copied atomic.Int64
}

// newTarPipe starts copying to w, which gets everything before end returns.
func newTarPipe(w io.Writer) (*tarPipe, error) {
	r, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// A larger pipe is quicker, but not every host allows one.
	_, _ = unix.FcntlInt(in.Fd(), unix.F_SETPIPE_SZ, 1<<20)
	p := &tarPipe{in: in, out: r, done: make(chan error, 1)}
	go func() {
		_, err := io.Copy(w, counting{r, &p.copied})
		// A sentry must notice when its output is no longer read.
		p.done <- errors.Join(err, r.Close())
	}()
	return p, nil
}

// counting counts what is read.
type counting struct {
	io.Reader
	n *atomic.Int64
}

func (c counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// end waits until all of the sentry's output was read. If the sentry failed, it does not wait.
func (p *tarPipe) end(failed error) error {
	_ = p.in.Close()
	if failed != nil {
		_ = p.out.SetReadDeadline(time.Now())
	}
	copied := <-p.done
	if copied == nil || errors.Is(copied, os.ErrDeadlineExceeded) {
		return failed
	}
	return copied // if the sentry failed, this is why
}
