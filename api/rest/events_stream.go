package rest

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/problem"
)

// heartbeat says when a quiet stream shows that it is alive: after first, which also tells the
// caller that it is connected, and then after every.
type heartbeat struct{ first, every time.Duration }

// eventStream writes server-sent events. What comes first determines the answer's status: an
// event or a heartbeat (200), or an error (its own).
type eventStream struct {
	w     http.ResponseWriter
	flush func() error

	mu      sync.Mutex
	started bool
	buf     bytes.Buffer
}

// streamEvents answers with the events that run sends. send may be called from one goroutine at
// a time, and fails when the caller has left.
func (s *handlers) streamEvents(w http.ResponseWriter, r *http.Request, ctx context.Context,
	run func(ctx context.Context, send func(id string, v any) error) error) {
	es := &eventStream{w: w, flush: http.NewResponseController(w).Flush}
	stop := es.keepAlive(s.beats)
	err := run(ctx, func(id string, v any) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return es.send("", id, v)
	})
	stop()
	switch {
	case middleware.EndedBy(ctx) != nil:
		s.endEvents(w, r, es, middleware.EndedBy(ctx))
	case ctx.Err() != nil && s.Closing():
		s.endByClosing(w, r, es, err)
	case ctx.Err() != nil: // the caller has left: there is nobody to tell
		if bothy.ErrorCode(err) == bothy.CodeCommandCancelled {
			middleware.Note(r.Context(), problem.Of(err))
		}
		es.begin()
	case err == nil:
		es.begin()
	default:
		s.endEvents(w, r, es, err)
	}
}

// endByClosing tells the caller that the server ends a stream. One that was cut off was perhaps
// more than that: it must not look as if it could be requested again.
func (s *handlers) endByClosing(w http.ResponseWriter, r *http.Request, es *eventStream, err error) {
	closing := bothy.Errorf(bothy.CodeShuttingDown, "the server is shutting down").
		WithHint("Connect again in a moment: sandboxes keep running, and the next server finds them.")
	closing.RetryAfter = reconnectAfter
	if r.Context().Err() != nil {
		es.begin()
	}
	if bothy.ErrorCode(err) != bothy.CodeCommandCancelled {
		err = closing
	}
	s.endEvents(w, r, es, err)
}

// reconnectAfter is how long a server takes to restart.
const reconnectAfter = 2 * time.Second

// endEvents reports an error: by the answer's status, or by a last event.
func (s *handlers) endEvents(w http.ResponseWriter, r *http.Request, es *eventStream, err error) {
	if !es.started {
		s.Fail(w, r, err)
		return
	}
	p := problem.Of(err)
	middleware.Note(r.Context(), p)
	_ = es.send("error", "", p)
}

// keepAlive sends heartbeats until stop is called, which waits for the last one.
func (es *eventStream) keepAlive(b heartbeat) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		timer := time.NewTimer(b.first)
		defer timer.Stop()
		for {
			select {
			case <-quit:
				return
			case <-timer.C:
				es.comment()
				timer.Reset(b.every)
			}
		}
	}()
	return func() { close(quit); <-done }
}

// begin sends the header of the answer, once.
func (es *eventStream) begin() {
	if es.started {
		return
	}
	es.started = true
	es.w.Header().Set("Content-Type", middleware.EventsType)
	es.w.Header().Set("X-Accel-Buffering", "no") // proxies must not hold events back
	es.w.WriteHeader(http.StatusOK)
}

func (es *eventStream) comment() {
	es.mu.Lock()
	defer es.mu.Unlock()
	es.begin()
	_, _ = es.w.Write([]byte(":\n\n"))
	_ = es.flush()
}

func (es *eventStream) send(name, id string, v any) error {
	es.mu.Lock()
	defer es.mu.Unlock()
	es.buf.Reset()
	if id != "" {
		es.buf.WriteString("id: " + id + "\n")
	}
	if name != "" {
		es.buf.WriteString("event: " + name + "\n")
	}
	es.buf.WriteString("data: ")
	if err := problem.Encode(&es.buf, v); err != nil { // ends the line
		return err
	}
	es.buf.WriteByte('\n')
	es.begin()
	if _, err := es.w.Write(es.buf.Bytes()); err != nil {
		return err
	}
	return es.flush()
}
