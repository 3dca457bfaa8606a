package lifecycle

import (
	"context"

	"github.com/bothy-dev/bothy/lifecycle/admission"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/store"
)

// track makes a machine one of the running ones: from here on its timeout, its memory and its
// exit are watched. It takes over the reservation, which is nil for a machine of the previous
// server.
func (s *Service) track(l *instance.Instance, sb *store.Sandbox, r *admission.Reservation) {
	ctx, cancel := context.WithCancel(s.background)
	l.Cancel = cancel
	s.o.Meter.Started(ctx, sb, l.Reading, r == nil)
	s.departures.remove(l.ID)
	s.mu.Lock()
	l.Root = sb.BudgetRoot
	s.instances[l.ID] = l
	s.mu.Unlock()
	s.admission.Running(l.ID, l.Project, r)
	s.arm(l, sb.ExpiresAt)
	if err := s.machines.ApplySuspension(s.background, l); err != nil {
		s.log.Error("cannot freeze a sandbox as the host's lease requires", "sandbox", l.ID, "error", err)
	}
	if s.register.Dir != "" {
		row := *sb
		s.watchers.Go(func() { s.enlist(l, row) })
	}
	s.watchers.Go(func() { s.machines.WatchMemory(ctx, l) })
	s.watchers.Go(func() { s.watchExit(ctx, l) })
	l.Activity.Touch(s.clock.Now())
	s.watchIdle(l, sb.IdleSeconds)
	s.watchCheckpoints(l, sb)
	s.machines.WatchIdleness(l, true, !l.Fresh)
	s.warm.Touch()
}
