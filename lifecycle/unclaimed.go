package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/bothy-dev/bothy/lifecycle/register"

	"github.com/bothy-dev/bothy"
)

// unclaimedLook is how often it is looked whether a machine that is kept aside is to
// be ended.
const unclaimedLook = 5 * time.Second

// unclaimed is a machine that the register knows and the store does not. It is frozen
// and kept until it is asked for to end, or a server comes whose store knows it again.
type unclaimed struct {
	register.Entry
	name    string        // what its engine calls it
	machine bothy.Machine // nil where it could not be taken over
}

// findUnclaimed keeps aside the machines of which the store has lost the sandboxes. It
// comes after what the store knows was taken over, and before the sweep.
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

// keepUnclaimed keeps one aside, unless it is gone.
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
	s.log.Error("the database knows nothing of a sandbox that runs, so it is frozen and kept aside: restore the database and restart, or end it with `bothy doctor --end-unclaimed`",
		"sandbox", e.ID, "project", e.ProjectID, "template", e.Template, "started", e.StartedAt, "error", err)
}

// lookForEnds ends, from time to time, what is kept aside and was asked for to end.
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
		s.log.Info("ending a machine that was kept aside, as asked for", "sandbox", u.ID)
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
		// Now that all is known again, machines without an owner may go.
		if err := s.sweep(context.WithoutCancel(s.background)); err != nil {
			s.log.Warn("cannot remove what was left of machines", "error", err)
		}
	}
}
