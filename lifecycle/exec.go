package lifecycle

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
)

// The methods of bothy.ExecService forward to the guest.

func (s *Service) Exec(ctx context.Context, id string, req bothy.ExecRequest) (*bothy.ExecResult, error) {
	if err := checkExec(req); err != nil {
		return nil, err
	}
	return result(ctx, s, id, func(g bothy.Guest) (res *bothy.ExecResult, err error) {
		err = s.inTime(ctx, id, req.TimeoutSeconds, !req.Background, func(ctx context.Context) (err error) {
			res, err = g.Exec(ctx, req)
			return err
		})
		return res, err
	})
}

// inTime makes a call to a sandbox that is in use, which the guest ends after some seconds if they
// are not 0.
func (s *Service) inTime(ctx context.Context, id string, seconds float64, mustEnd bool, call func(context.Context) error) error {
	l := s.instance(id)
	if l == nil || seconds <= 0 {
		return call(ctx)
	}
	return s.machines.InTime(ctx, l, time.Duration(seconds*float64(time.Second)), mustEnd, call)
}

func (s *Service) ExecStream(ctx context.Context, id string, req bothy.ExecRequest, fn func(bothy.ExecEvent) error) error {
	if err := checkExec(req); err != nil {
		return err
	}
	return s.do(ctx, id, func(g bothy.Guest) error {
		// Its end comes after all of the output, which may wait for a slow reader.
		return s.inTime(ctx, id, req.TimeoutSeconds, false, func(ctx context.Context) error { return g.ExecStream(ctx, req, answering(ctx, s, id, fn)) })
	})
}

func (s *Service) Processes(ctx context.Context, id string) ([]bothy.ProcessInfo, error) {
	return get(ctx, s, id, bothy.ScopeSandboxesRead, func(g bothy.Guest) ([]bothy.ProcessInfo, error) { return g.Processes(ctx) })
}

func (s *Service) AllProcesses(ctx context.Context, id string) ([]bothy.ProcessInfo, error) {
	return get(ctx, s, id, bothy.ScopeSandboxesRead, func(g bothy.Guest) ([]bothy.ProcessInfo, error) { return g.AllProcesses(ctx) })
}

func (s *Service) Output(ctx context.Context, id string, pid int, from int64, fn func(bothy.ExecEvent) error) error {
	return s.use(ctx, id, bothy.ScopeSandboxesRead, func(g bothy.Guest) error { return g.Output(ctx, pid, from, fn) })
}

func (s *Service) Stdin(ctx context.Context, id string, pid int, data []byte, eof bool) error {
	return s.do(ctx, id, func(g bothy.Guest) error { return g.Stdin(ctx, pid, data, eof) })
}

func (s *Service) Signal(ctx context.Context, id string, pid int, signal int) error {
	return s.do(ctx, id, func(g bothy.Guest) error { return g.Signal(ctx, pid, signal) })
}

func (s *Service) Terminal(ctx context.Context, id string, req bothy.TerminalRequest) (bothy.Terminal, error) {
	l, end, err := s.enter(ctx, id, bothy.ScopeSandboxesWrite, instance.ByTerminal)
	if err != nil {
		return nil, err
	}
	var t bothy.Terminal
	err = s.ask(ctx, l, func(g bothy.Guest) (err error) {
		t, err = g.Terminal(ctx, req)
		return err
	})
	if err != nil {
		end()
		return nil, err
	}
	return &usedTerminal{t, end}, nil
}

// usedTerminal keeps its sandbox active until it is closed.
type usedTerminal struct {
	bothy.Terminal
	end func()
}

func (t *usedTerminal) Close() error {
	defer t.end()
	return t.Terminal.Close()
}

// Detach implements bothy.Detacher if the guest's terminal does.
func (t *usedTerminal) Detach() error {
	defer t.end()
	if d, ok := t.Terminal.(bothy.Detacher); ok {
		return d.Detach()
	}
	return t.Terminal.Close()
}

func checkExec(req bothy.ExecRequest) error {
	if req.Command.Line == "" && len(req.Command.Args) == 0 {
		return bothy.Errorf(bothy.CodeCommandInvalid, "the command is empty").
			WithHint("Give a shell line as a string, or an array of arguments.")
	}
	// This form also refuses NaN.
	if !(req.TimeoutSeconds >= 0 && req.TimeoutSeconds <= bothy.MaxTimeoutSeconds) {
		return invalid("timeout_seconds is %v", req.TimeoutSeconds).WithHint("Give a value from 0 (no limit) to %d.", bothy.MaxTimeoutSeconds)
	}
	return checkEnv(req.Env)
}
