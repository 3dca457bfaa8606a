package agent

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/bothy-dev/bothy/guest/wire/processpb"
)

// batchDelay is how long a message waits for others that may follow. Most commands end in that
// time, so all their messages are one packet.
const batchDelay = time.Millisecond

// startDelay is the same for the message that a command was started, when nothing else is known
// yet.
const startDelay = 5 * time.Millisecond

// batchSize is how much is held back at most.
const batchSize = 64 << 10

var batchBuffers = sync.Pool{New: func() any { return new([batchSize]byte) }}

// batch buffers a stream's messages until it is flushed. Connect flushes after
// every message, which costs more than the message.
type batch struct {
	http.ResponseWriter
	buf *[batchSize]byte // nil while nothing is held
	n   int
	// waiting is set if something was sent and not flushed.
	waiting bool
}

func (b *batch) Write(p []byte) (int, error) {
	if b.n+len(p) > batchSize {
		if err := b.empty(); err != nil {
			return 0, err
		}
	}
	if len(p) > batchSize {
		return b.ResponseWriter.Write(p)
	}
	if b.buf == nil {
		b.buf = batchBuffers.Get().(*[batchSize]byte)
	}
	b.n += copy(b.buf[b.n:], p)
	return len(p), nil
}

// empty writes out the buffer.
func (b *batch) empty() error {
	if b.buf == nil {
		return nil
	}
	_, err := b.ResponseWriter.Write(b.buf[:b.n])
	batchBuffers.Put(b.buf)
	b.buf, b.n = nil, 0
	return err
}

// Flush is what Connect calls.
func (b *batch) Flush() { b.waiting = true }

// Unwrap lets http.ResponseController find the real one.
func (b *batch) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// flush sends what is held. An error shows again at the next write.
func (b *batch) flush() {
	if !b.waiting {
		return
	}
	b.waiting = false
	_ = b.empty()
	if f, ok := b.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

type batchKey struct{}

// batchOf returns the batch of a call that has one.
func batchOf(ctx context.Context) *batch {
	b, _ := ctx.Value(batchKey{}).(*batch)
	if b == nil {
		return &batch{} // never holds anything
	}
	return b
}

// batched gives a batch to the calls that follow a command.
func batched(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == processpb.ProcessStartProcedure || r.URL.Path == processpb.ProcessConnectProcedure {
			b := &batch{ResponseWriter: w}
			defer b.empty()
			w, r = b, r.WithContext(context.WithValue(r.Context(), batchKey{}, b))
		}
		next.ServeHTTP(w, r)
	})
}
