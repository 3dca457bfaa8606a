package rest

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/bothy-dev/bothy"
)

// An archive may have any size, so its transfer has no time limit. Its peer must keep a minimum
// rate instead: one that stalls, or trickles, would hold one of few slots forever.
const (
	// paceSilence is how long a peer may be idle.
	paceSilence = 30 * time.Second
	// paceGrace is how long a peer may be slower than paceBytes per second.
	paceGrace = time.Minute
	paceBytes = 16 << 10
)

// pace counts the time spent waiting for a peer, and the bytes transferred.
type pace struct {
	silence time.Duration // paceSilence if 0
	waited  time.Duration
	bytes   int64
}

// wait does one read or write with a deadline, and reports whether the peer is too slow.
func (p *pace) wait(deadline func(time.Time) error, do func() (int, error)) (int, error) {
	begun := time.Now()
	_ = deadline(begun.Add(cmp.Or(p.silence, paceSilence)))
	n, err := do()
	// A deadline left in place would end the request later, which is not the peer's fault.
	_ = deadline(time.Time{})
	p.waited += time.Since(begun)
	p.bytes += int64(n)
	if p.tooSlow() || errors.Is(err, os.ErrDeadlineExceeded) {
		return n, bothy.Errorf(bothy.CodeTimeout, "the transfer of the archive stalled, or was slower than %d KiB per second", paceBytes>>10).
			WithHint("Try again over a faster connection.").Because(err)
	}
	return n, err
}

func (p *pace) tooSlow() bool {
	return p.waited > paceGrace && float64(p.bytes) < p.waited.Seconds()*paceBytes
}

// pacedReader is a body whose sender must keep the pace.
type pacedReader struct {
	pace
	c    *http.ResponseController
	body io.Reader
}

func (r *pacedReader) Read(b []byte) (int, error) {
	return r.wait(r.c.SetReadDeadline, func() (int, error) { return r.body.Read(b) })
}

// pacedWriter is an answer whose reader must keep the pace.
type pacedWriter struct {
	pace
	http.ResponseWriter
	c *http.ResponseController
}

func (w *pacedWriter) Write(b []byte) (int, error) {
	return w.wait(w.c.SetWriteDeadline, func() (int, error) { return w.ResponseWriter.Write(b) })
}

// Unwrap is for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
