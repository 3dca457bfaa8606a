package lifecycle

import (
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/lifecycle/register"
	"github.com/bothy-dev/bothy/store"
)

// enlist registers a machine that lives. It is called beside what the caller waits
// for: a server that is killed just now loses no more than the second knowledge.
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

// strike takes a machine off the register, unless the sandbox has another one.
func (s *Service) strike(l *instance.Instance) {
	l.Enlisting.Lock()
	defer l.Enlisting.Unlock()
	if s.instance(l.ID) == nil && s.background.Err() == nil {
		s.register.Remove(register.RunningList, l.ID)
	}
}
