package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// lockPatience is how long a caller waits for another call that changes the same
	// sandbox, and workPatience how long the server's own work does before it tries
	// again later.
	lockPatience = time.Minute
	workPatience = 10 * time.Second
	// endPatience is how long the end of a sandbox waits for a call that changes it,
	// before it takes the machine away from that call.
	endPatience = 5 * time.Second
)

// within is ctx that ends after d of the service's clock.
func (s *Service) within(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := s.clock.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() { stop(); cancel(nil) }
}

// lockWithin locks a sandbox, and waits for that no longer than ctx and d.
func (s *Service) lockWithin(ctx context.Context, id string, d time.Duration) (unlock func(), err error) {
	if unlock := s.locks.tryLock(id); unlock != nil {
		return unlock, nil
	}
	ctx, done := s.within(ctx, d)
	defer done()
	if unlock, err = s.locks.lockIn(ctx, id); err != nil {
		return nil, context.Cause(ctx)
	}
	return unlock, nil
}

// lockFor locks a sandbox for a caller, who is told when another call takes too
// long.
func (s *Service) lockFor(ctx context.Context, id string) (unlock func(), err error) {
	unlock, err = s.lockWithin(ctx, id, lockPatience)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		e := bothy.Errorf(bothy.CodeSandboxNotReady, "another call has been changing sandbox %s for more than %d seconds", id, int(lockPatience.Seconds())).
			WithHint("Try again later. Deleting the sandbox does not wait for that call.")
		e.RetryAfter = workPatience
		return nil, e
	}
	return unlock, err
}

// lockToWork locks a sandbox for the server's own work.
func (s *Service) lockToWork(ctx context.Context, id string) (unlock func(), err error) {
	return s.lockWithin(ctx, id, workPatience)
}

// lockToEnd locks a sandbox that is to end for a reason. A call that holds it for
// too long loses its machine, and so fails: an end must not wait for a kernel that
// hangs.
func (s *Service) lockToEnd(ctx context.Context, id string, x bothy.Exit) (unlock func(), err error) {
	for {
		unlock, err = s.lockWithin(ctx, id, endPatience)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return unlock, err
		}
		if l := s.liveByID(id); l != nil {
			s.log.Warn("a sandbox that is to end is being changed by a call that takes long, so its machine is killed", "sandbox", id)
			l.mu.Lock()
			l.why = &x
			l.mu.Unlock()
			s.destroy(l.machine)
		}
	}
}
