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

// retryAttach has a sandbox tried again later. The caller holds its lock, and has
// returned to it whatever of its machine was found.
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
	s.log.Error("a sandbox of the last server cannot be taken over yet; it is tried again", "sandbox", sb.ID, "engine", sb.Engine, "why", why, "error", err)
	s.ledger.Emit(s.background, bothy.EventSandboxUnattached, sb, map[string]string{"detail": why})
	s.ledger.Retry("attach "+sb.ID, func(ctx context.Context) error { return s.attachAgain(ctx, sb.ID) })
}

func (s *Service) attachAgain(ctx context.Context, id string) error {
	u := s.unattachedByID(id)
	if u == nil {
		return nil
	}
	if s.engines.Get(u.engine) == nil && s.engines.Known(u.engine) && !s.engines.FailedLately(u.engine) {
		_, _ = s.engines.Need(ctx, u.engine) // what became of it is seen below
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

// reattach connects to a machine that outlived the server. Only one that is gone ends
// its sandbox; whatever else fails is tried again, see unattached.
func (s *Service) reattach(ctx context.Context, sb *store.Sandbox) error {
	// One that is to be paused when its time is up is adopted first: keep sees
	// that it is overdue.
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
		s.retryAttach(sb, u, fmt.Sprintf("the engine %s cannot be opened on this host now", sb.Engine), err)
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
		s.retryAttach(sb, u, "its machine could not be taken over", err)
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
		s.retryAttach(sb, u, "it does not answer", err)
		return nil
	}
	s.dropUnattached(sb.ID)
	s.track(l, sb, nil)
	return nil
}

// attachFound opens the network device of a machine that was found and asks its guest.
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

// findMachine is Adopt that returns when ctx ends, also where the engine does not. A
// call that is still under way is not made twice.
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

// stillPatience is how long a machine may take to answer before it is taken
// for one that stands still, because a server was killed around a snapshot.
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
