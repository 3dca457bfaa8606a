package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
)

// arm sets the timer that ends a sandbox, or disarms it.
func (s *Service) arm(l *live, at *time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopTimer != nil {
		l.stopTimer()
		l.stopTimer = nil
	}
	if at != nil {
		l.stopTimer = s.clock.AfterFunc(at.Sub(s.clock.Now()), func() { s.expire(l.id) })
	}
}

// pauseRetry is how long after a failed pause at the time-out the next is tried.
const pauseRetry = time.Minute

// expire ends a sandbox whose time is up. The timer may be older than the last
// change of the time-out, so the store decides.
func (s *Service) expire(id string) {
	ctx := context.WithoutCancel(s.background)
	unlock := s.locks.lock(id)
	defer unlock()
	sb, err := s.o.Store.Sandbox(ctx, id)
	if err != nil || sb.State != bothy.StateRunning || sb.ExpiresAt == nil || s.background.Err() != nil {
		return
	}
	if left := sb.ExpiresAt.Sub(s.clock.Now()); left > 0 {
		if l := s.liveByID(id); l != nil {
			s.arm(l, sb.ExpiresAt)
		}
		return
	}
	if sb.OnTimeout == bothy.TimeoutPause {
		_, err := s.pauseLocked(ctx, id, bothy.PauseOptions{})
		if err == nil {
			return
		}
		// Work that cannot be saved is not thrown away: try again later.
		s.log.Error("cannot pause a sandbox whose time is up", "sandbox", id, "error", err)
		if l := s.liveByID(id); l != nil {
			again := s.clock.Now().Add(pauseRetry)
			s.arm(l, &again)
		}
		return
	}
	if err := s.terminateLocked(ctx, id, timedOut(sb)); err != nil {
		s.log.Error("cannot end a sandbox whose time is up", "sandbox", id, "error", err)
	}
}

func timedOut(sb *bothy.Sandbox) bothy.Exit {
	return bothy.Exit{
		Reason: bothy.EndTimeout,
		Detail: fmt.Sprintf("its time-out of %d seconds was reached; a longer timeout_seconds at creation or by PATCH keeps it", sb.TimeoutSeconds),
	}
}
