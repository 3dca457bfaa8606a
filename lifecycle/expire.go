package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/lifecycle/ledger"
	"github.com/bothy-dev/bothy/store"
)

// arm sets or clears the timer for a sandbox's timeout.
func (s *Service) arm(l *instance.Instance, at *time.Time) {
	l.SetExpiry(func() (stop func() bool) {
		if at == nil {
			return nil
		}
		return s.clock.AfterFunc(at.Sub(s.clock.Now()), func() { s.expire(l.ID) })
	})
}

// pauseRetry is the pause after a failed attempt to pause a sandbox at its timeout.
const pauseRetry = time.Minute

// expire ends or pauses a sandbox at its timeout. Failures are retried.
func (s *Service) expire(id string) {
	if err := s.expireNow(s.background, id); err != nil {
		s.log.Error("cannot end or pause a sandbox at its timeout; trying again", "sandbox", id, "error", err)
		s.ledger.Retry("expire "+id, func(ctx context.Context) error { return s.expireNow(ctx, id) })
	}
}

// expireNow ends or pauses a sandbox at its timeout. The timer may be older than the last
// change of the timeout, so the store decides.
func (s *Service) expireNow(ctx context.Context, id string) error {
	sb, err := s.ledger.Sandbox(ctx, id)
	if err != nil || sb.ExpiresAt == nil || sb.State.Ended() {
		return ignoreNotFound(err)
	}
	// Ending a sandbox must not wait for a hanging call.
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
		return ignoreNotFound(err)
	}
	l := s.instance(id)
	if left := sb.ExpiresAt.Sub(s.clock.Now()); left > 0 {
		if l != nil {
			s.arm(l, sb.ExpiresAt)
		}
		return nil
	}
	if sb.OnTimeout != bothy.TimeoutPause {
		if err := s.terminateLocked(ctx, id, timedOut(sb)); !ledger.NotOurs(err) {
			return err
		}
		return nil
	}
	if l == nil {
		return s.wrongState(sb)
	}
	_, err = s.pauseLocked(ctx, id, bothy.PauseOptions{})
	if bothy.ErrorCode(err) == bothy.CodeQuota {
		// An exhausted quota must not be a way to keep running. It prevents new sandboxes
		// instead: see checkRoomToPause.
		_, err = s.pauseLocked(beyondQuota(ctx), id, bothy.PauseOptions{})
	}
	if err != nil {
		// Do not discard work that cannot be saved: try again later.
		s.log.Error("cannot pause a sandbox at its timeout", "sandbox", id, "error", err)
		if l := s.instance(id); l != nil {
			again := s.clock.Now().Add(pauseRetry)
			s.arm(l, &again)
		}
	}
	return nil
}

func timedOut(sb *store.Sandbox) bothy.Exit {
	return bothy.Exit{
		Reason: bothy.EndTimeout,
		Detail: fmt.Sprintf("its timeout of %d seconds was reached; set a longer timeout_seconds at creation or by PATCH to keep it", sb.TimeoutSeconds),
	}
}
