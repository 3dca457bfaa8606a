package lifecycle

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/admission"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/store"
)

// track makes a machine one of the live ones: from here on its time, its memory
// and its end are watched. It takes over the reservation, which there is
// unless the last server left the machine.
func (s *Service) track(l *instance.Instance, sb *store.Sandbox, r *admission.Reservation) {
	ctx, cancel := context.WithCancel(s.background)
	l.Cancel = cancel
	s.o.Meter.Started(ctx, sb, l.Reading, r == nil)
	s.mu.Lock()
	l.Root = sb.BudgetRoot
	s.instances[l.ID] = l
	s.mu.Unlock()
	s.admission.Running(l.ID, l.Project, r)
	s.arm(l, sb.ExpiresAt)
	if s.register.Dir != "" {
		row := *sb
		s.watchers.Go(func() { s.enlist(l, row) })
	}
	s.watchers.Go(func() { s.machines.WatchMemory(ctx, l) })
	s.watchers.Go(func() { s.watchExit(ctx, l) })
	l.Activity.Touch(s.clock.Now())
	s.watchIdle(l, sb.IdleSeconds)
	s.machines.WatchIdleness(l, true, !l.Fresh)
	s.warm.Touch()
}

// untrack is the opposite of keep, without the machine's end.
func (s *Service) untrack(l *instance.Instance) {
	s.o.Meter.Stopped(context.WithoutCancel(s.background), l.ID)
	s.mu.Lock()
	if s.instances[l.ID] == l {
		delete(s.instances, l.ID)
		s.admission.Remove(l.ID)
	}
	s.mu.Unlock()
	s.admission.Admit()
	s.strike(l)
	l.Detach()
}

// setTracked has a machine found by its id, or not.
func (s *Service) setTracked(l *instance.Instance, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found {
		s.instances[l.ID] = l
		s.admission.Running(l.ID, l.Project, nil)
	} else if s.instances[l.ID] == l {
		delete(s.instances, l.ID)
		s.admission.Remove(l.ID)
	}
}

func (s *Service) instance(id string) *instance.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.instances[id]
}

// watchExit notices a machine that ended by itself.
func (s *Service) watchExit(ctx context.Context, l *instance.Instance) {
	select {
	case <-ctx.Done():
		return
	case <-l.Machine.Done():
	}
	if l.EndExpected() {
		return
	}
	unlock := s.ledger.Lock(l.ID)
	defer unlock()
	if s.instance(l.ID) != l {
		return
	}
	s.untrack(l)
	// ctx has just been cancelled by untrack.
	s.recordExit(context.WithoutCancel(ctx), l)
}

func (s *Service) recordExit(ctx context.Context, l *instance.Instance) {
	defer l.Ended()
	x := l.Exit()
	s.log.Info("sandbox ended by itself", "sandbox", l.ID, "reason", x.Reason, "detail", x.Detail)
	if err := s.endByID(ctx, l.ID, x); err != nil {
		s.log.Error("cannot record the end of a sandbox, and try again until it is", "sandbox", l.ID, "error", err)
		s.ledger.Retry("end "+l.ID, func(ctx context.Context) error {
			unlock, err := s.ledger.LockToWork(ctx, l.ID)
			if err != nil {
				return err
			}
			defer unlock()
			return s.endByID(ctx, l.ID, x)
		})
	}
}

// endByID stores the end of a sandbox that has no machine any more. The caller
// holds its lock.
func (s *Service) endByID(ctx context.Context, id string, x bothy.Exit) error {
	sb, err := s.ledger.Sandbox(ctx, id)
	if bothy.ErrorCode(err) == bothy.CodeSandboxNotFound {
		return nil
	}
	if err != nil || sb.State.Ended() || s.instance(id) != nil {
		return err
	}
	return s.ledger.End(ctx, sb, x)
}

func expiry(from time.Time, seconds int) *time.Time {
	if seconds == 0 {
		return nil
	}
	t := from.Add(time.Duration(seconds) * time.Second)
	return &t
}
