package ledger

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Emit records an event. A failure is logged and retried.
func (g *Ledger) Emit(ctx context.Context, typ string, sb *store.Sandbox, data map[string]string) {
	g.EmitFor(ctx, typ, sb.ID, sb.ProjectID, data)
}

// EmitFor is Emit by id and project.
func (g *Ledger) EmitFor(ctx context.Context, typ, id, project string, data map[string]string) {
	e := bothy.Event{Time: g.o.Clock.Now().UTC(), Type: typ, SandboxID: id, ProjectID: project, Data: data}
	g.unsaved.mu.Lock()
	waiting := len(g.unsaved.events) > 0
	g.unsaved.mu.Unlock()
	if !waiting {
		err := g.sendEvent(ctx, &e)
		if err == nil {
			return
		}
		g.o.Log.Error("cannot store an event; trying again", "type", typ, "sandbox", id, "error", err)
	}
	g.unsaved.mu.Lock()
	defer g.unsaved.mu.Unlock()
	if n := len(g.unsaved.events); n >= maxUnsent {
		g.unsaved.events = g.unsaved.events[n-maxUnsent+1:]
	}
	g.unsaved.events = append(g.unsaved.events, e)
	g.Retry("events", g.sendEvents)
}

func (g *Ledger) sendEvent(ctx context.Context, e *bothy.Event) error {
	if err := g.o.Store.AddEvent(context.WithoutCancel(ctx), e); err != nil {
		return err
	}
	g.events.wake()
	if g.o.Observe != nil {
		g.o.Observe(*e)
	}
	return nil
}

// sendEvents stores the unsaved events in order.
func (g *Ledger) sendEvents(ctx context.Context) error {
	u := &g.unsaved
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.events) > 0 {
		if err := g.sendEvent(ctx, &u.events[0]); err != nil {
			return err
		}
		u.events = u.events[1:]
	}
	return nil
}

// broadcaster wakes everyone who follows events.
type broadcaster struct {
	mu sync.Mutex
	ch chan struct{}
}

func newBroadcaster() *broadcaster { return &broadcaster{ch: make(chan struct{})} }

func (b *broadcaster) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.ch)
	b.ch = make(chan struct{})
}

// next returns a channel that is closed at the next wake.
func (b *broadcaster) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ch
}

// PollEvents wakes followers when other servers have stored events, until the service ends.
func (g *Ledger) PollEvents(every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	var last int64
	for {
		select {
		case <-g.o.Background.Done():
			return
		case <-t.C:
		}
		if id, err := g.o.Store.LastEvent(g.o.Background); err == nil && id != last {
			last = id
			g.events.wake()
		}
	}
}

const eventPage = 500

// LastEvent returns an id such that later events have higher ids.
func (g *Ledger) LastEvent(ctx context.Context) (int64, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeSandboxesRead); err != nil {
		return 0, err
	}
	return g.o.Store.LastEvent(ctx)
}

// Events streams the events of the caller's objects.
func (g *Ledger) Events(ctx context.Context, f bothy.EventFilter, fn func(bothy.Event) error) error {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return err
	}
	for {
		next := g.events.next()
		page, err := g.o.Store.Events(ctx, caller.ProjectID, f.Since, eventPage)
		if err != nil {
			return err
		}
		for _, e := range page {
			f.Since = e.ID
			if f.SandboxID != "" && e.SandboxID != f.SandboxID {
				continue
			}
			if err := fn(e); err != nil {
				return err
			}
		}
		if len(page) == eventPage {
			continue
		}
		if !f.Follow {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		case <-g.o.Background.Done():
			return nil
		}
	}
}

// EventsBackwards lists the events of the caller's objects, newest first.
func (g *Ledger) EventsBackwards(ctx context.Context, fn func(bothy.Event) error) error {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return err
	}
	for before := int64(math.MaxInt64); ; {
		page, err := g.o.Store.EventsBefore(ctx, caller.ProjectID, before, eventPage)
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := fn(e); err != nil {
				return err
			}
			before = e.ID
		}
		if len(page) < eventPage {
			return nil
		}
	}
}
