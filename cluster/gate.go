package cluster

import (
	"context"
	"sync"
	"time"
)

// Gate counts the requests in flight to each sandbox on this host, and holds new ones while a
// sandbox moves.
type Gate struct {
	mu  sync.Mutex
	all map[string]*passage
}

// passage is the state of a sandbox that has requests or is parked.
type passage struct {
	inside int
	// opened is closed when the sandbox is unparked; nil if it is not parked.
	opened chan struct{}
	// idle is closed when the last request leaves; nil if no call waits for that. With park,
	// the sandbox is parked at that moment.
	idle chan struct{}
	park bool
}

const (
	// idlePatience is how long Park waits for a moment without requests in flight. endPatience
	// is how long it then waits for those in flight while holding new ones.
	idlePatience = 15 * time.Second
	endPatience  = 2 * time.Second
)

func (g *Gate) of(id string) *passage {
	if g.all == nil {
		g.all = map[string]*passage{}
	}
	p := g.all[id]
	if p == nil {
		p = &passage{}
		g.all[id] = p
	}
	return p
}

// tidy deletes an unused passage.
func (g *Gate) tidy(id string, p *passage) {
	if p.inside == 0 && p.opened == nil && p.idle == nil && g.all[id] == p {
		delete(g.all, id)
	}
}

// Enter counts a request until leave is called. It blocks while the sandbox is parked.
func (g *Gate) Enter(ctx context.Context, id string) (leave func(), err error) {
	for {
		g.mu.Lock()
		p := g.of(id)
		wait := p.opened
		if wait == nil {
			p.inside++
			g.mu.Unlock()
			return sync.OnceFunc(func() { g.leave(id, p) }), nil
		}
		g.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (g *Gate) leave(id string, p *passage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.inside--; p.inside == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
		if p.park {
			p.opened, p.park = make(chan struct{}), false
		}
	}
	g.tidy(id, p)
}

// Park holds new requests until unpark is called. It starts holding them at the first moment
// without requests in flight, or after idlePatience. It returns once none is in flight, or
// after endPatience. A sandbox must not be parked by two callers at once.
func (g *Gate) Park(ctx context.Context, id string) (unpark func()) {
	g.mu.Lock()
	p := g.of(id)
	if p.inside > 0 {
		idle := p.waitIdle()
		p.park = true
		g.mu.Unlock()
		await(ctx, idle, idlePatience)
		g.mu.Lock()
		p.park = false
	}
	if p.opened == nil {
		p.opened = make(chan struct{})
	}
	var idle chan struct{}
	if p.inside > 0 {
		idle = p.waitIdle()
	}
	g.mu.Unlock()
	if idle != nil {
		await(ctx, idle, endPatience)
	}
	return sync.OnceFunc(func() { g.unpark(id, p) })
}

// await waits for end to be closed, at most for the given time.
func await(ctx context.Context, end <-chan struct{}, most time.Duration) {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-end:
	case <-t.C:
	case <-ctx.Done():
	}
}

func (p *passage) waitIdle() chan struct{} {
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	return p.idle
}

func (g *Gate) unpark(id string, p *passage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(p.opened)
	p.opened = nil
	g.tidy(id, p)
}
