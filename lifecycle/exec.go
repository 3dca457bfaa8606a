package lifecycle

import (
	"cmp"
	"context"
	"net/url"
	"regexp"
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
		var end bothy.ExecEvent
		if res != nil {
			end = bothy.ExecEvent{ExitCode: res.ExitCode, TimedOut: res.TimedOut, OOMKilled: res.OOMKilled, Truncated: res.Truncated, Hint: res.Hint}
		}
		s.judge(ctx, id, req, end, err)
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
		var end bothy.ExecEvent
		answer := answering(ctx, s, id, fn)
		err := s.inTime(ctx, id, req.TimeoutSeconds, false, func(ctx context.Context) error {
			return g.ExecStream(ctx, req, func(e bothy.ExecEvent) error {
				if e.IsFinal {
					end = e
				}
				return answer(e)
			})
		})
		s.judge(ctx, id, req, end, err)
		return err
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

// Wait checks the scope before its arguments, and both before it wakes a sandbox.
func (s *Service) Wait(ctx context.Context, id string, req bothy.WaitRequest) (*bothy.WaitResult, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeSandboxesWrite); err != nil {
		return nil, err
	}
	if err := checkWait(req); err != nil {
		return nil, err
	}
	req.TimeoutSeconds = cmp.Or(req.TimeoutSeconds, bothy.DefaultWaitSeconds)
	return get(ctx, s, id, bothy.ScopeSandboxesWrite, func(g bothy.Guest) (res *bothy.WaitResult, err error) {
		err = s.inTime(ctx, id, req.TimeoutSeconds, true, func(ctx context.Context) (err error) {
			res, err = g.Wait(ctx, req)
			return err
		})
		return res, err
	})
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

func checkWait(req bothy.WaitRequest) error {
	things := 0
	for _, given := range []bool{req.Port != 0, req.URL != "", req.Log != ""} {
		if given {
			things++
		}
	}
	u, err := url.Parse(req.URL)
	switch {
	case things > 1 || things == 0 && req.PID == 0:
		return invalid("%d things are to be waited for, not one", things).WithHint("Give one of port, url and log, or only the pid of a process to wait for its end.")
	case req.Port < 0 || req.Port > 65535:
		return invalid("%d is not a port", req.Port).WithHint("Give a number from 1 to 65535.")
	case req.URL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"):
		return invalid("%q is not the URL of a web server", req.URL).WithHint("Give one as it is seen inside the sandbox, such as http://localhost:8000/.")
	case req.Status != 0 && (req.URL == "" || req.Status < 100 || req.Status > 599):
		return invalid("status is %d", req.Status).WithHint("It goes with url, and is from 100 to 599.")
	case req.Log != "" && (req.PID == 0) == (req.Path == ""):
		return invalid("log needs a process or a file").WithHint("Give the pid of a process that was started through the API, or the path of a file; not both.")
	case req.Log == "" && (req.Path != "" || req.User != "" || req.Regex):
		return invalid("path, user and regex go with log").WithHint("Say with log which line to look for.")
	case len(req.Log) > bothy.MaxWaitText || len(req.URL) > bothy.MaxWaitText:
		return invalid("what is waited for is too long").WithHint("Give at most %d bytes.", bothy.MaxWaitText)
	case req.PID < 0:
		return invalid("%d is not a pid", req.PID)
	case !(req.TimeoutSeconds >= 0 && req.TimeoutSeconds <= bothy.MaxWaitSeconds): // also NaN
		return invalid("timeout_seconds is %v", req.TimeoutSeconds).WithHint("Give at most %d, and wait again if that is not enough.", bothy.MaxWaitSeconds)
	}
	if _, err := regexp.Compile(req.Log); req.Regex && err != nil {
		return invalid("log is not a regular expression: %v", err).WithHint("The syntax is RE2's.")
	}
	return nil
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
