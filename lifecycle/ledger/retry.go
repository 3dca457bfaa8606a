package ledger

import (
	"context"
	"sync"
	"time"
)

const (
	// retryFirst and retrySeldom are the first and the longest pause between attempts.
	retryFirst  = time.Second
	retrySeldom = 30 * time.Second
)

// retries are operations that failed and must still be done, one per key, so there are at most
// a few for each sandbox.
type retries struct {
	mu sync.Mutex
	m  map[string]*retry
}

type retry struct {
	do   func(context.Context) error
	turn int // counts replacements of do
	wait time.Duration
	stop func() bool
}

// Retry calls do until it succeeds, with growing pauses by the service's clock. It replaces a
// pending retry with the same key. do must check by itself whether there is still something to
// do.
func (g *Ledger) Retry(key string, do func(context.Context) error) {
	g.retries.mu.Lock()
	defer g.retries.mu.Unlock()
	if r := g.retries.m[key]; r != nil {
		r.do = do
		r.turn++
		return
	}
	if g.retries.m == nil {
		g.retries.m = map[string]*retry{}
	}
	r := &retry{do: do, wait: retryFirst}
	g.retries.m[key] = r
	g.armRetry(key, r)
}

// armRetry is called with retries.mu held.
func (g *Ledger) armRetry(key string, r *retry) {
	r.stop = g.o.Clock.AfterFunc(r.wait, func() { g.runRetry(key, r) })
}

func (g *Ledger) runRetry(key string, r *retry) {
	if g.o.Background.Err() != nil {
		return
	}
	g.retries.mu.Lock()
	do, turn := r.do, r.turn
	g.retries.mu.Unlock()
	err := do(g.o.Background)
	g.retries.mu.Lock()
	defer g.retries.mu.Unlock()
	if err == nil && r.turn == turn {
		delete(g.retries.m, key)
		return
	}
	r.wait = min(2*r.wait, retrySeldom)
	g.armRetry(key, r)
}

func (g *Ledger) StopRetries() {
	g.retries.mu.Lock()
	defer g.retries.mu.Unlock()
	for _, r := range g.retries.m {
		r.stop()
	}
}
