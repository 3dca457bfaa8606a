package lifecycle

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
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
		return // it is swept when it is opened
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.background), 30*time.Second)
	defer cancel()
	if err := s.sweepEngine(ctx, u.engine, e); err != nil {
		s.log.Error("cannot remove a machine", "machine", u.name, "engine", u.engine, "error", err)
	}
}

// recoverTimeout bounds the adoption of one machine.
const recoverTimeout = 15 * time.Second

// adoption is a call to an engine that may not return.
type adoption struct {
	done    chan struct{}
	machine bothy.Machine
	err     error
}
