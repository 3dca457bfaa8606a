package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/store"
)

// retryAttach schedules another attempt to attach. The caller holds the sandbox's lock, and has
// released what it found of the machine.
func (s *Service) retryAttach(sb *store.Sandbox, u *unattached, why string, err error) {
	first := false
	s.mu.Lock()
	u.why = why
	if s.unattached[sb.ID] == nil {
		first = true
		s.unattached[sb.ID] = u
		s.admission.Running(sb.ID, u.project, nil)
		if sb.ExpiresAt != nil {
			id := sb.ID
			u.stopTimer = s.clock.AfterFunc(max(0, sb.ExpiresAt.Sub(s.clock.Now())), func() { s.expire(id) })
		}
	}
	s.mu.Unlock()
	if !first {
		return
	}
	s.log.Error("cannot attach to a sandbox of the previous server; trying again", "sandbox", sb.ID, "engine", sb.Engine, "why", why, "error", err)
	s.ledger.Emit(s.background, bothy.EventSandboxUnattached, sb, map[string]string{"detail": why})
	s.ledger.Retry("attach "+sb.ID, func(ctx context.Context) error { return s.attachAgain(ctx, sb.ID) })
}

func (s *Service) attachAgain(ctx context.Context, id string) error {
	u := s.unattachedByID(id)
	if u == nil {
		return nil
	}
	if s.engines.Get(u.engine) == nil && s.engines.Known(u.engine) && !s.engines.FailedLately(u.engine) {
		_, _ = s.engines.Need(ctx, u.engine) // a failure shows below
	}
	unlock, err := s.ledger.LockToWork(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if s.unattachedByID(id) != u {
		return nil
	}
	sb, err := s.ledger.Sandbox(ctx, id)
	if err != nil {
		return err
	}
	if sb.State != bothy.StateRunning {
		s.dropUnattached(id)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.engines.Patience(sb.Engine, recoverTimeout))
	defer cancel()
	if err := s.reattach(ctx, sb); err != nil {
		return err
	}
	if why := s.whyUnattached(id); why != "" {
		return errors.New(why)
	}
	return nil
}

// reattach attaches to a machine that outlived the server. The sandbox ends only if the machine
// is gone; any other failure is retried, see unattached.
func (s *Service) reattach(ctx context.Context, sb *store.Sandbox) error {
	// An overdue sandbox with on_timeout pause is attached first; track notices that it is
	// overdue.
	if sb.ExpiresAt != nil && !sb.ExpiresAt.After(s.clock.Now()) && sb.OnTimeout != bothy.TimeoutPause {
		return s.terminateLocked(ctx, sb.ID, timedOut(sb))
	}
	u := s.unattachedByID(sb.ID)
	if u == nil {
		u = &unattached{project: sb.ProjectID, engine: sb.Engine, name: sb.ID}
	}
	engine := s.engines.Get(sb.Engine)
	if engine == nil {
		err := fmt.Errorf("the engine %q is not open", sb.Engine)
		s.retryAttach(sb, u, fmt.Sprintf("cannot open the engine %s on this host now", sb.Engine), err)
		return nil
	}
	s.mu.Lock()
	u.name = machineName(engine, sb.ID, sb.EngineState)
	s.mu.Unlock()
	m, err := s.findMachine(ctx, u, engine, sb)
	if bothy.ErrorCode(err) == bothy.CodeNotFound {
		s.log.Info("machine is gone", "sandbox", sb.ID, "error", err)
		s.dropUnattached(sb.ID)
		if s.pauseAfterLoss(ctx, sb) {
			return nil
		}
		return s.endWithCheckpoints(ctx, sb, bothy.Exit{Reason: bothy.EndHostRestart, Detail: "the sandbox was gone when the server came back: the host was restarted, or the sandbox's process was killed"})
	}
	if err != nil {
		s.retryAttach(sb, u, "the server cannot adopt its machine", err)
		return nil
	}
	u.machine = m
	select {
	case <-m.Done():
		s.dropUnattached(sb.ID)
		return s.endWithCheckpoints(ctx, sb, m.Exit())
	default:
	}
	l, err := s.attachFound(ctx, sb, m)
	if err != nil {
		s.retryAttach(sb, u, "its guest does not respond", err)
		return nil
	}
	s.dropUnattached(sb.ID)
	s.ledger.NoteVersion(sb)
	s.track(l, sb, nil)
	return nil
}

// attachFound attaches to a machine that was found and checks that its guest responds.
func (s *Service) attachFound(ctx context.Context, sb *store.Sandbox, m bothy.Machine) (*instance.Instance, error) {
	l, err := s.machines.Attach(ctx, sb, m, sb.GuestKey)
	if err != nil {
		return nil, err
	}
	if err = instance.OpenNetwork(l.Gateway, sb); err == nil {
		err = s.answers(ctx, l)
	}
	if err != nil {
		l.Detach()
		return nil, err
	}
	return l, nil
}

// findMachine calls the engine's Adopt, but returns when ctx ends even if the engine does not.
// A call that is still in progress is not repeated.
func (s *Service) findMachine(ctx context.Context, u *unattached, e bothy.Engine, sb *store.Sandbox) (bothy.Machine, error) {
	if u.machine != nil {
		return u.machine, nil
	}
	a := u.adopting
	if a == nil {
		a = &adoption{done: make(chan struct{})}
		u.adopting = a
		actx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.engines.Patience(sb.Engine, recoverTimeout))
		go func() {
			defer close(a.done)
			defer cancel()
			a.machine, a.err = e.Adopt(actx, sb.ID, sb.EngineState)
		}()
	}
	select {
	case <-a.done:
		u.adopting = nil
		return a.machine, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stillPatience is how long a machine may take to respond before it is assumed to be frozen
// because a server was killed during a snapshot.
const stillPatience = time.Second

func (s *Service) answers(ctx context.Context, l *instance.Instance) error {
	first, cancel := context.WithTimeout(ctx, s.engines.Patience(l.Engine, stillPatience))
	defer cancel()
	if l.Guest.WaitReady(first) == nil {
		return nil
	}
	if err := l.Machine.Thaw(ctx); err != nil {
		return err
	}
	return l.Guest.WaitReady(ctx)
}
