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

// unattached is a running sandbox of the last server whose machine is not known to
// be gone and could not be taken over yet: its engine did not open, or something
// failed or took too long. It is tried again until it is taken over, or has ended.
// Until then its time-out counts, its owner may delete it, and its machine is not
// swept.
type unattached struct {
	project, engine string
	// name is what its engine calls the machine.
	name string
	// why is for callers.
	why string
	// machine is set once the engine has found it, and adopting while it looks.
	machine  bothy.Machine
	adopting *adoption
	// stopTimer ends the wait for the sandbox's time-out, if it has one.
	stopTimer func() bool
}

// adoption is a call to an engine that may not return.
type adoption struct {
	done    chan struct{}
	machine bothy.Machine
	err     error
}

// whyUnattached says why a running sandbox cannot be used; it is empty where it can.
func (s *Service) whyUnattached(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.unattached[id]; u != nil {
		return u.why
	}
	return ""
}

func (s *Service) unattachedByID(id string) *unattached {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unattached[id]
}

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

// dropUnattached forgets that a sandbox is to be tried again, and returns what was
// known of it.
func (s *Service) dropUnattached(id string) *unattached {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.unattached[id]
	if u != nil && u.stopTimer != nil {
		u.stopTimer()
	}
	if u != nil {
		delete(s.unattached, id)
		s.admission.Remove(id)
	}
	return u
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
		return s.ledger.End(ctx, sb, bothy.Exit{Reason: bothy.EndHostRestart, Detail: "the sandbox was gone when the server came back: the host was restarted, or the sandbox's process was killed"})
	}
	if err != nil {
		s.retryAttach(sb, u, "its machine could not be taken over", err)
		return nil
	}
	u.machine = m
	select {
	case <-m.Done():
		s.dropUnattached(sb.ID)
		return s.ledger.End(ctx, sb, m.Exit())
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

// machineName is what an engine calls a machine: see bothy.MachineNamer.
func machineName(e bothy.Engine, id string, state []byte) string {
	if n, ok := e.(bothy.MachineNamer); ok {
		return n.MachineName(id, state)
	}
	return id
}

// endUnattached ends the machine of a sandbox that was not taken over and whose end
// is stored, or about to be. One that cannot be reached is swept.
func (s *Service) endUnattached(u *unattached) {
	if u.machine != nil {
		s.machines.Destroy(u.machine)
		return
	}
	e := s.engines.Get(u.engine)
	if e == nil {
		return // whoever opens it sweeps
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.background), 30*time.Second)
	defer cancel()
	if err := s.sweepEngine(ctx, u.engine, e); err != nil {
		s.log.Error("cannot remove a machine", "machine", u.name, "engine", u.engine, "error", err)
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
