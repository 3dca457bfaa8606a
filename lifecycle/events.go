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
	e := &bothy.Event{Time: s.clock.Now().UTC(), Type: typ, SandboxID: id, ProjectID: project, Data: data}
	if err := s.o.Store.AddEvent(context.WithoutCancel(ctx), e); err != nil {
		s.log.Error("cannot store an event", "type", typ, "sandbox", id, "error", err)
		return
	}
	s.events.wake()
	if s.o.Observe != nil {
		s.o.Observe(*e)
	}
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
