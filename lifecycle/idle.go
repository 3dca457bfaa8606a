package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
)

// watchIdle sets or clears the timer that pauses or ends an idle sandbox.
func (s *Service) watchIdle(l *instance.Instance, seconds int) {
	idle := time.Duration(seconds) * time.Second
	l.SetIdle(func() (stop func() bool) {
		if seconds <= 0 {
			return nil
		}
		return s.clock.AfterFunc(idle, func() { s.checkIdle(l, idle) })
	})
}

// checkIdle pauses or ends a sandbox that has been idle long enough, and otherwise sets the
// timer again.
func (s *Service) checkIdle(l *instance.Instance, idle time.Duration) {
	ctx, cancel := context.WithTimeout(s.background, 30*time.Second)
	defer cancel()
	if s.instance(l.ID) != l {
		return
	}
	_, since := s.machines.Observe(ctx, l)
	left := idle - s.clock.Now().Sub(since)
	if left <= 0 {
		if err := s.leaveIdle(context.WithoutCancel(ctx), l, idle); err == nil {
			return
		} else if s.background.Err() == nil {
			s.log.Warn("cannot pause or end an idle sandbox", "sandbox", l.ID, "error", err)
		}
		left = idle
	}
	l.SetIdleAgain(func() (stop func() bool) {
		// At least a second, so that CPU usage can be measured.
		return s.clock.AfterFunc(max(left, time.Second), func() { s.checkIdle(l, idle) })
	})
}

func (s *Service) leaveIdle(ctx context.Context, l *instance.Instance, idle time.Duration) error {
	unlock, err := s.ledger.LockToWork(ctx, l.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if s.instance(l.ID) != l || !l.Activity.CloseIfIdle(s.clock.Now(), idle) {
		return nil
	}
	sb, err := s.ledger.Sandbox(ctx, l.ID)
	switch {
	case err != nil:
	case sb.EndWhenIdle:
		err = s.terminateLocked(ctx, l.ID, bothy.Exit{
			Reason: bothy.EndTimeout, Detail: fmt.Sprintf("nothing used it for %d seconds", sb.IdleSeconds),
		})
	default:
		_, err = s.pauseLocked(ctx, l.ID, bothy.PauseOptions{})
	}
	if err != nil {
		l.Activity.Reopen()
	}
	return err
}

// Metrics returns what a sandbox uses. It does not count as activity.
func (s *Service) Metrics(ctx context.Context, id string) (*bothy.Metrics, error) {
	sb, err := s.ledger.Find(ctx, id, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, err
	}
	l := s.instance(id)
	if l == nil {
		return nil, s.wrongState(sb)
	}
	m, err := s.measure(ctx, l)
	if err != nil {
		if e := s.endedError(ctx, l); e != nil {
			return nil, e
		}
		return nil, err
	}
	holders, since := s.machines.Observe(ctx, l)
	m.HeldAwakeBy = holders
	if len(holders) == 0 {
		m.IdleForSeconds = s.clock.Now().Sub(since).Seconds()
	}
	return m, nil
}
