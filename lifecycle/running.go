package lifecycle

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/lifecycle/ledger"
	"github.com/bothy-dev/bothy/lifecycle/register"
	"github.com/bothy-dev/bothy/store"
)

// untrack is the opposite of track. It does not end the machine.
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

// setTracked adds a machine to, or removes it from, those found by id.
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

// watchExit handles a machine that ends by itself.
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
	// untrack has cancelled ctx.
	s.recordExit(context.WithoutCancel(ctx), l)
}

func (s *Service) recordExit(ctx context.Context, l *instance.Instance) {
	defer l.Ended()
	x := l.Exit()
	s.log.Info("sandbox ended by itself", "sandbox", l.ID, "reason", x.Reason, "detail", x.Detail)
	if err := s.endByID(ctx, l.ID, x); err != nil {
		s.log.Error("cannot record the end of a sandbox; trying again", "sandbox", l.ID, "error", err)
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

// endByID stores the end of a sandbox whose machine is gone. The caller holds its lock.
func (s *Service) endByID(ctx context.Context, id string, x bothy.Exit) error {
	sb, err := s.ledger.Sandbox(ctx, id)
	if bothy.ErrorCode(err) == bothy.CodeSandboxNotFound {
		return nil
	}
	if err != nil || sb.State.Ended() || s.instance(id) != nil {
		return err
	}
	if sb.State == bothy.StatePaused {
		return nil // something other than this server has paused it, so this was not its machine
	}
	return s.endWithCheckpoints(ctx, sb, x)
}

// endWithCheckpoints stores the end of a sandbox, unless it is another host's by now, and deletes
// its checkpoints.
func (s *Service) endWithCheckpoints(ctx context.Context, sb *store.Sandbox, x bothy.Exit) error {
	checkpoints := sb.Checkpoints
	err := s.ledger.EndThen(ctx, sb, x, func() { s.dropCheckpoints(context.WithoutCancel(ctx), checkpoints) })
	if ledger.NotOurs(err) {
		return nil
	}
	return err
}

func expiry(from time.Time, seconds int) *time.Time {
	if seconds == 0 {
		return nil
	}
	t := from.Add(time.Duration(seconds) * time.Second)
	return &t
}

// enlist registers a running machine. It runs concurrently with what the caller waits for: if
// the server is killed just now, only this second record is missing.
func (s *Service) enlist(l *instance.Instance, sb store.Sandbox) {
	e := register.Entry{ID: sb.ID, Name: sb.Name, ProjectID: sb.ProjectID, Template: sb.Template, Engine: sb.Engine, EngineState: sb.EngineState}
	if sb.StartedAt != nil {
		e.StartedAt = *sb.StartedAt
	}
	l.Enlisting.Lock()
	defer l.Enlisting.Unlock()
	if s.instance(l.ID) != l || s.background.Err() != nil {
		return
	}
	if err := s.register.Put(register.RunningList, e); err != nil {
		s.log.Warn("cannot register a machine", "sandbox", l.ID, "error", err)
	}
	s.register.Remove(register.UnclaimedList, l.ID)
}

// strike removes a machine from the register, unless the sandbox has a new one.
func (s *Service) strike(l *instance.Instance) {
	l.Enlisting.Lock()
	defer l.Enlisting.Unlock()
	if s.instance(l.ID) == nil && s.background.Err() == nil {
		s.register.Remove(register.RunningList, l.ID)
	}
}
