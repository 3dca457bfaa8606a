package lifecycle

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
)

// unattached is a running sandbox of the previous server whose machine may still exist but
// could not be attached to: its engine did not open, or something failed or took too long.
// Attaching is retried until it succeeds or the sandbox ends. Until then its timeout applies,
// its owner may delete it, and its machine is not swept.
type unattached struct {
	project, engine string
	// name is its engine's name for the machine.
	name string
	// why is the reason, for callers.
	why string
	// machine is set once the engine has found it, and adopting while it looks.
	machine  bothy.Machine
	adopting *adoption
	// stopTimer stops the timer for the sandbox's timeout, if it has one.
	stopTimer func() bool
}

// whyUnattached says why a running sandbox cannot be used, or returns "".
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

// dropUnattached ends the attempts to attach to a sandbox, and returns its state.
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

// machineName is an engine's name for a machine: see bothy.MachineNamer.
func machineName(e bothy.Engine, id string, state []byte) string {
	if n, ok := e.(bothy.MachineNamer); ok {
		return n.MachineName(id, state)
	}
	return id
}

// endUnattached destroys the machine of an unattached sandbox that is ending. If the machine
// cannot be reached, it is swept.
func (s *Service) endUnattached(u *unattached) {
	if u.machine != nil {
		s.machines.Destroy(u.machine)
		return
	}
	e := s.engines.Get(u.engine)
	if e == nil {
		return // the machine is swept when the engine opens
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.background), 30*time.Second)
	defer cancel()
	if err := s.sweepEngine(ctx, u.engine, e); err != nil {
		s.log.Error("cannot remove a machine", "machine", u.name, "engine", u.engine, "error", err)
	}
}

// recoverTimeout limits the adoption of one machine.
const recoverTimeout = 15 * time.Second

// adoption is a call to an engine that may hang.
type adoption struct {
	done    chan struct{}
	machine bothy.Machine
	err     error
}
