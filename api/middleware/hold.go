package middleware

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// CutAfter is how long a request whose key has ended may take to answer with that.
const CutAfter = 500 * time.Millisecond

// hold is a request's life, as far as it depends on the key or link that it came with.
type hold struct {
	cancel context.CancelCauseFunc
	conn   *http.ResponseController

	mu       sync.Mutex
	over     bool
	releases []func()
}

// holdable returns a context that end ends.
func (h *hold) holdable(ctx context.Context, w http.ResponseWriter) context.Context {
	h.conn = http.NewResponseController(w)
	ctx, h.cancel = context.WithCancelCause(ctx)
	return ctx
}

// OnRelease makes f be called when the request is over.
func (h *hold) OnRelease(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releases = append(h.releases, f)
}

func (h *hold) release() {
	h.mu.Lock()
	h.over = true
	releases := h.releases
	h.mu.Unlock()
	for _, f := range releases {
		f()
	}
	h.cancel(nil)
}

// End ends the request. Its connection is cut if that takes too long, as when the caller neither
// reads nor closes.
func (h *hold) End(cause error) {
	h.cancel(cause)
	time.AfterFunc(CutAfter, h.cut)
}

func (h *hold) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	past := time.Now().Add(-time.Second)
	_ = h.conn.SetReadDeadline(past)
	_ = h.conn.SetWriteDeadline(past)
}

// HoldKey finds the caller behind a key. The request then depends on the key.
func (s *Chain) HoldKey(r *http.Request, key string) (*bothy.Caller, error) {
	info, holder := RequestFrom(r.Context()), bothy.KeyHolder(nil)
	if info != nil {
		holder, _ = s.Tokens.(bothy.KeyHolder)
	}
	if holder == nil {
		return s.Tokens.Authenticate(r.Context(), key)
	}
	caller, release, err := holder.Hold(r.Context(), key, info.End)
	if err == nil {
		info.OnRelease(release)
	}
	return caller, err
}

// EndedBy returns the error for a caller whose request's context has ended; nil while it
// continues, and if it ended because the caller disconnected or the server is stopping.
func EndedBy(ctx context.Context) *bothy.Error {
	var e *bothy.Error
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &e) {
		return e
	}
	return nil
}
