package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/bothy-dev/bothy/lifecycle/register"

	"github.com/bothy-dev/bothy"
)

// unclaimedLook is how often requests to end unclaimed machines are looked for.
const unclaimedLook = 5 * time.Second

// unclaimed is a machine that the register has and the store does not. It is frozen and kept
// until its end is requested, or a server starts whose store has it again.
type unclaimed struct {
	register.Entry
	name    string        // its engine's name for it
	machine bothy.Machine // nil if it could not be adopted
}

// findUnclaimed freezes and keeps the machines whose sandboxes the store has lost. It is called
// after known sandboxes are recovered, and before the sweep.
func (s *Service) findUnclaimed(ctx context.Context) error {
	running, err := s.register.List(register.RunningList)
	before, berr := s.register.List(register.UnclaimedList)
	for _, e := range append(running, before...) {
		if s.instance(e.ID) != nil || s.unattachedByID(e.ID) != nil {
			continue
		}
		_, serr := s.ledger.Sandbox(ctx, e.ID)
		switch bothy.ErrorCode(serr) {
		case bothy.CodeSandboxNotFound:
			s.keepUnclaimed(ctx, e)
		case "":
			s.register.Remove(register.RunningList, e.ID)
			s.register.Remove(register.UnclaimedList, e.ID)
		default:
			err = errors.Join(err, serr)
		}
	}
	s.lookForEnds()
	return errors.Join(err, berr)
}

// keepUnclaimed freezes and keeps a machine, unless it is gone.
func (s *Service) keepUnclaimed(ctx context.Context, e register.Entry) {
	u := &unclaimed{Entry: e, name: e.ID}
	engine, err := s.engines.Need(ctx, e.Engine)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, s.engines.Patience(e.Engine, recoverTimeout))
		defer cancel()
		u.name = machineName(engine, e.ID, e.EngineState)
		u.machine, err = engine.Adopt(ctx, e.ID, e.EngineState)
		if err == nil {
			err = u.machine.Freeze(ctx)
		}
	}
	s.register.Remove(register.RunningList, e.ID)
	if bothy.ErrorCode(err) == bothy.CodeNotFound {
		s.register.Remove(register.UnclaimedList, e.ID)
		return
	}
	if perr := s.register.Put(register.UnclaimedList, e); perr != nil {
		s.log.Warn("cannot register a machine", "sandbox", e.ID, "error", perr)
		_ = s.register.Put(register.RunningList, e)
	}
	s.mu.Lock()
	s.unclaimed[e.ID] = u
	s.mu.Unlock()
	s.log.Error("the database has no record of a running sandbox, so it is frozen and kept: restore the database and restart, or end it with `bothy doctor --end-unclaimed`",
		"sandbox", e.ID, "project", e.ProjectID, "template", e.Template, "started", e.StartedAt, "error", err)
}

// lookForEnds regularly destroys the unclaimed machines whose end was requested.
func (s *Service) lookForEnds() {
	s.mu.Lock()
	var ending []*unclaimed
	for id, u := range s.unclaimed {
		if !s.register.Has(register.UnclaimedList, id) {
			ending = append(ending, u)
			delete(s.unclaimed, id)
		}
	}
	left := len(s.unclaimed)
	s.mu.Unlock()
	for _, u := range ending {
		s.log.Info("destroying an unclaimed machine, as requested", "sandbox", u.ID)
		if u.machine != nil {
			s.machines.Destroy(u.machine)
		}
	}
	if left > 0 {
		s.clock.AfterFunc(unclaimedLook, func() {
			if s.background.Err() == nil {
				s.lookForEnds()
			}
		})
	} else if len(ending) > 0 {
		// No unclaimed machines are left, so the sweep is safe again.
		if err := s.sweep(context.WithoutCancel(s.background)); err != nil {
			s.log.Warn("cannot remove leftover machines", "error", err)
		}
	}
}
