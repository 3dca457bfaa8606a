package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/store"
)

// arm sets the timer that ends a sandbox, or disarms it.
func (s *Service) arm(l *instance.Instance, at *time.Time) {
	l.SetExpiry(func() (stop func() bool) {
		if at == nil {
			return nil
		}
		return s.clock.AfterFunc(at.Sub(s.clock.Now()), func() { s.expire(l.ID) })
	})
}

// pauseRetry is how long after a failed pause at the time-out the next is tried.
const pauseRetry = time.Minute

// expire ends a sandbox whose time is up. What fails is tried again.
func (s *Service) expire(id string) {
	if err := s.expireNow(s.background, id); err != nil {
		s.log.Error("cannot end or pause a sandbox whose time is up, and try again", "sandbox", id, "error", err)
		s.ledger.Retry("expire "+id, func(ctx context.Context) error { return s.expireNow(ctx, id) })
	}
}

// expireNow ends a sandbox whose time is up. The timer may be older than the last
// change of the time-out, so the store decides.
func (s *Service) expireNow(ctx context.Context, id string) error {
	sb, err := s.ledger.Sandbox(ctx, id)
	if err != nil || sb.ExpiresAt == nil || sb.State.Ended() {
		return unlessGone(err)
	}
	// What is to be ended need not wait for a call that hangs.
	lock := s.ledger.LockToWork
	if sb.OnTimeout != bothy.TimeoutPause && !sb.ExpiresAt.After(s.clock.Now()) {
		lock = func(ctx context.Context, id string) (func(), error) { return s.lockToEnd(ctx, id, timedOut(sb)) }
	}
	unlock, err := lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	ctx = context.WithoutCancel(ctx)
	sb, err = s.ledger.Sandbox(ctx, id)
	if err != nil || sb.State != bothy.StateRunning || sb.ExpiresAt == nil || s.background.Err() != nil {
		return unlessGone(err)
	}
	l := s.instance(id)
	if left := sb.ExpiresAt.Sub(s.clock.Now()); left > 0 {
		if l != nil {
			s.arm(l, sb.ExpiresAt)
		}
		return nil
	}
	if sb.OnTimeout != bothy.TimeoutPause {
		return s.terminateLocked(ctx, id, timedOut(sb))
	}
	if l == nil {
		return s.wrongState(sb)
	}
	_, err = s.pauseLocked(ctx, id, bothy.PauseOptions{})
	if bothy.ErrorCode(err) == bothy.CodeQuota {
		// Storage that is used up must not be a way to run on. Where it is, no new
		// sandbox that is to be paused starts: see checkRoomToPause.
		_, err = s.pauseLocked(beyondQuota(ctx), id, bothy.PauseOptions{})
	}
	if err != nil {
		// Work that cannot be saved is not thrown away: try again later.
		s.log.Error("cannot pause a sandbox whose time is up", "sandbox", id, "error", err)
		if l := s.instance(id); l != nil {
			again := s.clock.Now().Add(pauseRetry)
			s.arm(l, &again)
		}
	}
	return nil
}

// unlessGone is err, but for a sandbox that is not stored any more.
func unlessGone(err error) error {
	if bothy.ErrorCode(err) == bothy.CodeSandboxNotFound {
		return nil
	}
	return err
}

func timedOut(sb *store.Sandbox) bothy.Exit {
	return bothy.Exit{
		Reason: bothy.EndTimeout,
		Detail: fmt.Sprintf("its time-out of %d seconds was reached; a longer timeout_seconds at creation or by PATCH keeps it", sb.TimeoutSeconds),
	}
}
