package lifecycle

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
)

// repeatHealth is how long the same verdict is not told again: a command that fails may be repeated
// many times a second.
const repeatHealth = time.Minute

// judge draws a conclusion about the machine from how a command ended, in the words of its error or hint.
func (s *Service) judge(ctx context.Context, id string, req bothy.ExecRequest, end bothy.ExecEvent, err error) {
	l := s.instance(id)
	if l == nil {
		return
	}
	h := &bothy.Health{At: s.clock.Now().UTC()}
	var e *bothy.Error
	switch {
	case errors.As(err, &e):
		h.Detail, h.Hint = e.Detail, e.Hint
		switch {
		case e.Code == bothy.CodeCapacity && e.RetryAfter == 0:
			h.Status = bothy.HealthManyProcesses
		case e.Code == bothy.CodeCommandNotFound && req.Command.Line != "":
			h.Status = bothy.HealthNoShell
		case e.Code == bothy.CodeUserNotFound && req.User == "":
			h.Status = bothy.HealthNoUser
		case e.Code == bothy.CodeInvalid && req.Cwd == "" && strings.HasPrefix(e.Detail, "the working directory "):
			h.Status = bothy.HealthNoCwd
		default:
			return // it says nothing about the machine
		}
	case err != nil || end.TimedOut:
		return
	case end.OOMKilled:
		h.Status, h.Detail, h.Hint = bothy.HealthOutOfMemory, "a command was killed because the sandbox was out of memory", end.Hint
	case end.Truncated && end.ExitCode != 0:
		return // its hint is about the output, and may be about the disk too
	case end.Hint != "" && end.ExitCode != 0:
		h.Status, h.Detail = bothy.HealthDiskFull, end.Hint
	default:
		h = nil
	}
	s.setHealth(ctx, l, h)
}

// setHealth records what is wrong with a machine, or that nothing is, and tells it.
func (s *Service) setHealth(ctx context.Context, l *instance.Instance, h *bothy.Health) {
	before := l.Health.Swap(h)
	if h == nil || before != nil && before.Status == h.Status && h.At.Sub(before.At) < repeatHealth {
		return
	}
	s.ledger.EmitFor(context.WithoutCancel(ctx), bothy.EventSandboxUnhealthy, l.ID, l.Project,
		map[string]string{"status": string(h.Status), "detail": h.Detail})
}

// health is what is wrong with a machine that runs here, or nil.
func (s *Service) health(id string) *bothy.Health {
	if l := s.instance(id); l != nil {
		return l.Health.Load()
	}
	return nil
}
