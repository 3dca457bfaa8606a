package lifecycle

import (
	"context"
	"io"
	"time"

	"github.com/bothy-dev/bothy"
)

// running returns the caller's live machine. The store is asked only when there
// is none, for the reason.
func (s *Service) running(ctx context.Context, id string, scope bothy.Scope) (*live, error) {
	caller, err := bothy.Require(ctx, scope)
	if err != nil {
		return nil, err
	}
	if l := s.liveByID(id); l != nil {
		if l.project != caller.ProjectID {
			return nil, notFound(id)
		}
		return l, nil
	}
	sb, err := s.find(ctx, id, scope)
	if err != nil {
		return nil, err
	}
	if !sb.AutoResume || (sb.State != bothy.StatePaused && sb.State != bothy.StatePausing && sb.State != bothy.StateResuming) {
		return nil, wrongState(sb)
	}
	return s.awaken(ctx, id)
}

// awaken resumes a sandbox that wakes on touch, unless somebody else just did.
func (s *Service) awaken(ctx context.Context, id string) (*live, error) {
	unlock := s.locks.lock(id)
	defer unlock()
	sb, err := s.o.Store.Sandbox(ctx, id)
	if err != nil {
		return nil, err
	}
	if sb.State == bothy.StatePaused {
		if err := s.resumeLocked(ctx, sb); err != nil {
			return nil, err
		}
	}
	if l := s.liveByID(id); l != nil {
		return l, nil
	}
	return nil, wrongState(sb)
}

// use calls f with the guest of a running sandbox. When the guest cannot be
// reached because the machine has ended, the error says so.
func (s *Service) use(ctx context.Context, id string, scope bothy.Scope, f func(bothy.Guest) error) error {
	l, err := s.running(ctx, id, scope)
	if err != nil {
		return err
	}
	end, err := s.hold(l, heldByRequest)
	if err != nil {
		return err
	}
	defer end()
	err = f(l.guest)
	if bothy.ErrorCode(err) == bothy.CodeGuest {
		if e := s.whyGone(ctx, l); e != nil {
			return e
		}
	}
	return err
}

// read is use with something that is read after f has returned: until it is
// closed, it holds the sandbox awake.
func (s *Service) read(ctx context.Context, id string, f func(bothy.Guest) (io.ReadCloser, error)) (io.ReadCloser, error) {
	l, err := s.running(ctx, id, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, err
	}
	end, err := s.hold(l, heldByRequest)
	if err != nil {
		return nil, err
	}
	r, err := get(ctx, s, id, bothy.ScopeSandboxesRead, f)
	if err != nil {
		end()
		return nil, err
	}
	return &usedReader{r, end}, nil
}

type usedReader struct {
	io.ReadCloser
	end func()
}

func (r *usedReader) Close() error {
	defer r.end()
	return r.ReadCloser.Close()
}

// whyGone waits briefly for the record of a machine's end. It returns nil when
// the machine lives.
func (s *Service) whyGone(ctx context.Context, l *live) error {
	// A cable breaks a moment before its machine is seen to end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	l.mu.Lock()
	ending := l.ending
	l.mu.Unlock()
	grace, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	if !ending {
		select {
		case <-l.machine.Done():
		case <-grace.Done():
			return nil
		}
	}
	select {
	case <-l.gone:
	case <-ctx.Done():
	}
	sb, err := s.o.Store.Sandbox(ctx, l.id)
	if err != nil {
		return err
	}
	return wrongState(sb)
}

func get[T any](ctx context.Context, s *Service, id string, scope bothy.Scope, f func(bothy.Guest) (T, error)) (T, error) {
	var v T
	err := s.use(ctx, id, scope, func(g bothy.Guest) (err error) {
		v, err = f(g)
		return err
	})
	return v, err
}
