package lifecycle

import (
	"context"
	"sync"

	"github.com/bothy-dev/bothy"
)

// emit records that something happened. A failure is logged and does not undo
// what happened.
func (s *Service) emit(ctx context.Context, typ string, sb *bothy.Sandbox, data map[string]string) {
	s.emitFor(ctx, typ, sb.ID, sb.ProjectID, data)
}

func (s *Service) emitFor(ctx context.Context, typ, id, project string, data map[string]string) {
	e := bothy.Event{Time: s.clock.Now().UTC(), Type: typ, SandboxID: id, ProjectID: project, Data: data}
	s.unrecorded.mu.Lock()
	waiting := len(s.unrecorded.events) > 0
	s.unrecorded.mu.Unlock()
	if !waiting {
		err := s.sendEvent(ctx, &e)
		if err == nil {
			return
		}
		s.log.Error("cannot store an event, and try again", "type", typ, "sandbox", id, "error", err)
	}
	s.unrecorded.mu.Lock()
	defer s.unrecorded.mu.Unlock()
	if n := len(s.unrecorded.events); n >= maxUnsent {
		s.unrecorded.events = s.unrecorded.events[n-maxUnsent+1:]
	}
	s.unrecorded.events = append(s.unrecorded.events, e)
	s.later("events", s.sendEvents)
}

func (s *Service) sendEvent(ctx context.Context, e *bothy.Event) error {
	if err := s.o.Store.AddEvent(context.WithoutCancel(ctx), e); err != nil {
		return err
	}
	s.events.wake()
	if s.o.Observe != nil {
		s.o.Observe(*e)
	}
	return nil
}

// sendEvents stores the events that wait for it, in their order.
func (s *Service) sendEvents(ctx context.Context) error {
	u := &s.unrecorded
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.events) > 0 {
		if err := s.sendEvent(ctx, &u.events[0]); err != nil {
			return err
		}
		u.events = u.events[1:]
	}
	return nil
}

// broadcaster wakes everybody who follows events.
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

const eventPage = 500

// Events tells what happened to the caller's objects.
func (s *Service) Events(ctx context.Context, since int64, follow bool, fn func(bothy.Event) error) error {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return err
	}
	for {
		next := s.events.next()
		page, err := s.o.Store.Events(ctx, caller.ProjectID, since, eventPage)
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := fn(e); err != nil {
				return err
			}
			since = e.ID
		}
		if len(page) == eventPage {
			continue
		}
		if !follow {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.background.Done():
			return nil
		}
	}
}
