package lifecycle

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/admission"
)

// keep makes a machine one of the live ones: from here on its time, its memory
// and its end are watched. It takes over the reservation, which there is
// unless the last server left the machine.
func (s *Service) keep(l *live, sb *bothy.Sandbox, r *admission.Reservation) {
	ctx, cancel := context.WithCancel(s.background)
	l.cancel = cancel
	s.o.Meter.Started(ctx, sb, l.reading, r == nil)
	s.mu.Lock()
	l.root = sb.BudgetRoot
	s.live[l.id] = l
	s.mu.Unlock()
	s.admission.Running(l.id, l.project, r)
	s.arm(l, sb.ExpiresAt)
	if s.register.Dir != "" {
		row := *sb
		s.watchers.Go(func() { s.enlist(l, row) })
	}
	s.watchers.Go(func() { s.machines.watchMemory(ctx, l) })
	s.watchers.Go(func() { s.watchExit(ctx, l) })
	l.use.touch(s.clock.Now())
	s.watchIdle(l, sb.IdleSeconds)
	s.machines.watchStill(l, true, !l.fresh)
	s.pool.touch()
}

// forget is the opposite of keep, without the machine's end.
func (s *Service) forget(l *live) {
	s.o.Meter.Stopped(context.WithoutCancel(s.background), l.id)
	s.mu.Lock()
	if s.live[l.id] == l {
		delete(s.live, l.id)
		s.admission.Remove(l.id)
	}
	s.mu.Unlock()
	s.admission.Admit()
	s.strike(l)
	l.detach()
}

// list has a machine found by its id, or not.
func (s *Service) list(l *live, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found {
		s.live[l.id] = l
		s.admission.Running(l.id, l.project, nil)
	} else if s.live[l.id] == l {
		delete(s.live, l.id)
		s.admission.Remove(l.id)
	}
}

func (s *Service) liveByID(id string) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[id]
}

// watchExit notices a machine that ended by itself.
func (s *Service) watchExit(ctx context.Context, l *live) {
	select {
	case <-ctx.Done():
		return
	case <-l.machine.Done():
	}
	if l.endExpected() {
		return
	}
	unlock := s.ledger.Lock(l.id)
	defer unlock()
	if s.liveByID(l.id) != l {
		return
	}
	s.forget(l)
	// ctx has just been cancelled by forget.
	s.recordExit(context.WithoutCancel(ctx), l)
}

func (s *Service) recordExit(ctx context.Context, l *live) {
	defer l.ended()
	x := l.exit()
	s.log.Info("sandbox ended by itself", "sandbox", l.id, "reason", x.Reason, "detail", x.Detail)
	if err := s.endByID(ctx, l.id, x); err != nil {
		s.log.Error("cannot record the end of a sandbox, and try again until it is", "sandbox", l.id, "error", err)
		s.ledger.Retry("end "+l.id, func(ctx context.Context) error {
			unlock, err := s.ledger.LockToWork(ctx, l.id)
			if err != nil {
				return err
			}
			defer unlock()
			return s.endByID(ctx, l.id, x)
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
	if err != nil || sb.State.Ended() || s.liveByID(id) != nil {
		return err
	}
	return s.ledger.End(ctx, sb, x)
}
