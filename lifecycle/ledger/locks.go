package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

const (
	// lockPatience is how long a caller waits for another operation on the same sandbox, and
	// workPatience how long the server's own work waits before it tries again later.
	lockPatience = time.Minute
	workPatience = 10 * time.Second
)

// Lock locks a sandbox, and returns how to unlock it.
func (g *Ledger) Lock(id string) (unlock func()) { return g.locks.Lock(id) }

// LockUsers counts the holder of and waiters for a sandbox's lock.
func (g *Ledger) LockUsers(id string) int { return g.locks.Users(id) }

// within is context.WithTimeout by the service's clock.
func (g *Ledger) within(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := g.o.Clock.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() { stop(); cancel(nil) }
}

// LockWithin locks a sandbox, waiting at most for d or until ctx ends.
func (g *Ledger) LockWithin(ctx context.Context, id string, d time.Duration) (unlock func(), err error) {
	if unlock := g.locks.TryLock(id); unlock != nil {
		return unlock, nil
	}
	ctx, done := g.within(ctx, d)
	defer done()
	if unlock, err = g.locks.LockIn(ctx, id); err != nil {
		return nil, context.Cause(ctx)
	}
	return unlock, nil
}

// LockFor locks a sandbox for a caller, with an error for the caller if that takes too long.
func (g *Ledger) LockFor(ctx context.Context, id string) (unlock func(), err error) {
	unlock, err = g.LockWithin(ctx, id, lockPatience)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		e := bothy.Errorf(bothy.CodeSandboxNotReady, "another operation has been changing sandbox %s for more than %d seconds", id, int(lockPatience.Seconds())).
			WithHint("Try again later. Deleting the sandbox does not wait for that operation.")
		e.RetryAfter = workPatience
		return nil, e
	}
	return unlock, err
}

// FindLocked finds the caller's sandbox to change it, and locks it.
func (g *Ledger) FindLocked(ctx context.Context, id string) (sb *store.Sandbox, unlock func(), err error) {
	if _, err := g.Find(ctx, id, bothy.ScopeSandboxesWrite); err != nil {
		return nil, nil, err
	}
	if unlock, err = g.LockFor(ctx, id); err != nil {
		return nil, nil, err
	}
	if sb, err = g.Sandbox(ctx, id); err != nil {
		unlock()
		return nil, nil, err
	}
	return sb, unlock, nil
}

// LockToWork locks a sandbox for the server's own work.
func (g *Ledger) LockToWork(ctx context.Context, id string) (unlock func(), err error) {
	return g.LockWithin(ctx, id, workPatience)
}
