package lifecycle

import (
	"context"
	"errors"

	"github.com/bothy-dev/bothy"
)

// sweep removes machines that belong to no sandbox here.
func (s *Service) sweep(ctx context.Context) error {
	var errs []error
	for name, e := range s.engines.Opened() {
		errs = append(errs, s.sweepEngine(ctx, name, e))
	}
	return errors.Join(errs...)
}

func (s *Service) doubtful() bool { return s.o.Doubtful != nil && s.o.Doubtful() }

func (s *Service) sweepEngine(ctx context.Context, name string, e bothy.Engine) error {
	if s.doubtful() || s.hasUnclaimed() {
		s.log.Warn("the database has lost records, so machines that seem unowned are not removed", "engine", name)
		return nil
	}
	ids, err := e.Sweep(ctx, s.keptMachine)
	if len(ids) > 0 {
		s.log.Info("removed leftover machines", "engine", name, "count", len(ids), "ids", ids[:min(len(ids), 20)])
	}
	return err
}

// keptMachine reports whether a machine that no engine holds must stay, by its engine's name
// for it. Machines of running sandboxes are held.
func (s *Service) keptMachine(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.unattached {
		if u.name == name {
			return true
		}
	}
	return false
}

// hasUnclaimed reports whether the store has lost sandboxes. Then nothing is swept: a machine
// that seems unowned may belong to another lost one.
func (s *Service) hasUnclaimed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unclaimed) > 0
}
