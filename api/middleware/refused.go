package middleware

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// RefusedFor is how long a caller may keep sending a refused body, and maxRefused how many
	// may do so at the same time.
	RefusedFor = 10 * time.Second
	maxRefused = 256
)

// incoming is a request's body that records whether its end was read. A proxy's transport may
// still read it while the answer is written.
type incoming struct {
	io.ReadCloser
	began, ended atomic.Bool
	expects      bool // the caller waits for permission to send it
}

func newIncoming(r *http.Request) *incoming {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	b := &incoming{ReadCloser: r.Body, expects: strings.EqualFold(r.Header.Get("Expect"), "100-continue")}
	r.Body = b
	return b
}

func (b *incoming) Read(p []byte) (int, error) {
	b.began.Store(true)
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended.Store(true)
	}
	return n, err
}

// pending reports whether the caller may still be sending.
func (b *incoming) pending() bool {
	return b != nil && !b.ended.Load() && (b.began.Load() || !b.expects)
}

// refusing lets the rest of a body follow the answer that refuses it: net/http would read a part
// of it first, and then close the connection, which destroys the answer for callers who are
// still sending.
func (w *recorder) refusing(status int) {
	if status >= 400 && w.body.pending() {
		_ = http.NewResponseController(w.ResponseWriter).EnableFullDuplex() // only HTTP/1 needs this
		w.refused = true
	}
}

// WholeProblem sends a refusal with its length, so that it is complete before the rest of the
// body is. Only for handlers that do not flush.
type WholeProblem struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (w *WholeProblem) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *WholeProblem) WriteHeader(status int) {
	if w.status == 0 && status >= 400 {
		w.status = status
	}
	if w.status == 0 {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *WholeProblem) Write(b []byte) (int, error) {
	if w.status != 0 {
		return w.body.Write(b)
	}
	return w.ResponseWriter.Write(b)
}

// Send sends the buffered answer.
func (w *WholeProblem) Send() {
	if w.status == 0 {
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(w.body.Len()))
	w.ResponseWriter.WriteHeader(w.status)
	_, _ = w.ResponseWriter.Write(w.body.Bytes())
}

// settle reads and discards the rest of a refused body.
func (s *Chain) settle(w *recorder) {
	if !w.refused || !w.body.pending() {
		return
	}
	select {
	case s.settling <- struct{}{}:
		defer func() { <-s.settling }()
	default: // too many callers do that: the connection is closed
		return
	}
	c := http.NewResponseController(w.ResponseWriter)
	_ = c.Flush()
	_ = c.SetReadDeadline(time.Now().Add(RefusedFor))
	_, _ = io.Copy(io.Discard, w.body)
}
