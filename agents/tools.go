package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

// builtIn are the tools of agent_toolset_20260401.
var builtIn = []string{"bash", "read", "write", "edit", "glob", "grep"}

// A tool is an anthropic.BetaTool that runs in the session's sandbox.
type tool struct {
	s     *session
	name  string
	about string
	// run runs a call in a sandbox. An error goes to the agent, like a failed result.
	run func(ctx context.Context, sandbox, call string, input json.RawMessage) (result []block, failed bool, err error)
}

var _ anthropic.BetaTool = (*tool)(nil)

// tools are the session's tools.
func (s *session) tools() []anthropic.BetaTool {
	all := []anthropic.BetaTool{
		&tool{s, "bash", "Run a command in a shell that stays.", s.bashTool},
		&tool{s, "read", "Read a file: text, an image or a PDF.", input(s.read)},
		&tool{s, "write", "Write a text file.", input(s.write)},
		&tool{s, "edit", "Replace text in a file.", s.editTool},
		&tool{s, "glob", "List paths that match a pattern, newest first.", input(s.glob)},
		&tool{s, "grep", "Search files for a regular expression.", input(s.grep)},
	}
	for _, t := range s.worker.attachment.Tools {
		all = append(all, &tool{s, t.Name, "A command in the sandbox.", s.custom(t)})
	}
	return all
}

// input is a tool whose calls can be repeated.
func input[T any](f func(ctx context.Context, sandbox string, in T) ([]block, error)) func(context.Context, string, string, json.RawMessage) ([]block, bool, error) {
	return func(ctx context.Context, sandbox, _ string, raw json.RawMessage) ([]block, bool, error) {
		var in T
		if err := decode(raw, &in); err != nil {
			return nil, false, err
		}
		result, err := f(ctx, sandbox, in)
		return result, false, err
	}
}

// decode reads the input of a call.
func decode(raw json.RawMessage, in any) error {
	if err := json.Unmarshal(raw, in); err != nil {
		return fmt.Errorf("the input is not what this tool takes: %w", err)
	}
	return nil
}

// Name implements anthropic.BetaTool.
func (t *tool) Name() string { return t.name }

// Description implements anthropic.BetaTool.
func (t *tool) Description() string { return t.about }

// InputSchema implements anthropic.BetaTool. The service has the schemas itself.
func (t *tool) InputSchema() anthropic.BetaToolInputSchemaParam {
	return anthropic.BetaToolInputSchemaParam{}
}

// Execute implements anthropic.BetaTool. The result of a finished call is kept until the service
// has it, so none is run twice.
func (t *tool) Execute(ctx context.Context, raw json.RawMessage) ([]anthropic.BetaToolResultBlockParamContentUnion, error) {
	id := callID(ctx)
	if id == "" {
		return nil, errors.New("the call has no id, so it was not run")
	}
	c := t.s.call(id)
	if !c.Done {
		result, failed, err := t.inSandbox(ctx, id, raw)
		if ctx.Err() != nil {
			if cut(ctx) {
				_ = t.s.change(ctx, func(r *record) { delete(r.Calls, id) })
			}
			return nil, ctx.Err()
		}
		if err != nil {
			result, failed = text(t.name+": "+explain(err)), true
		}
		_ = failpoint.Hit("agents.ran")
		c = callState{Done: true, Result: result, Failed: failed}
		if err := t.s.note(ctx, id, c); err != nil {
			t.s.worker.log.Error("the result of a call cannot be stored", "session", t.s.id, "call", id, "error", err)
		}
	}
	_ = failpoint.Hit("agents.kept")
	if c.Failed {
		return nil, failure(c.Result)
	}
	return params(c.Result), nil
}

// failure turns a result into an error, as the SDK expects it.
func failure(result []block) error {
	s := ""
	for _, b := range result {
		s += b.Text
	}
	return errors.New(s)
}

func (t *tool) inSandbox(ctx context.Context, id string, raw json.RawMessage) ([]block, bool, error) {
	sandbox, err := t.s.ensure(ctx)
	if err != nil {
		t.s.blame(ctx, err)
		return nil, false, err
	}
	result, failed, err := t.run(ctx, sandbox, id, raw)
	switch bothy.ErrorCode(err) {
	case bothy.CodeSandboxEnded, bothy.CodeSandboxNotFound, bothy.CodeSandboxPaused, bothy.CodeGuest, bothy.CodeSandboxNotReady:
		t.s.ready = false // the next call finds out what became of it
	}
	return result, failed, err
}

// blame records why there is no sandbox.
func (s *session) blame(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.worker.log.Warn("a session has no sandbox", "session", s.id, "error", err)
	_ = s.change(ctx, func(r *record) { r.Error = explain(err) })
}

func (s *session) call(id string) callState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Calls[id]
}

// note stores the progress of a call.
func (s *session) note(ctx context.Context, id string, c callState) error {
	return s.change(ctx, func(r *record) {
		if r.Calls == nil {
			r.Calls = map[string]callState{}
		}
		r.Calls[id] = c
		r.forgetResults(id)
	})
}

// maxResults limits the results that are kept until the service takes them, in bytes.
const maxResults = 32 << 20

// forgetResults leaves out results, but not a call's, while there are too many. Only a service that
// takes none of them makes that happen.
func (r *record) forgetResults(but string) {
	size := func(c callState) (n int) {
		for _, b := range c.Result {
			n += len(b.Text) + len(b.Data)
		}
		return n + idMemory
	}
	total := 0
	for _, c := range r.Calls {
		total += size(c)
	}
	for id, c := range r.Calls {
		if total > maxResults && c.Done && id != but {
			delete(r.Calls, id)
			total -= size(c)
		}
	}
}

func (s *session) bashTool(ctx context.Context, sandbox, id string, raw json.RawMessage) ([]block, bool, error) {
	var in struct {
		Command   string `json:"command"`
		Restart   bool   `json:"restart"`
		TimeoutMS int64  `json:"timeout_ms"`
	}
	if err := decode(raw, &in); err != nil {
		return nil, false, err
	}
	if in.Restart && s.call(id).Process == 0 {
		if err := s.endShell(ctx); err != nil {
			return nil, false, err
		}
		if in.Command == "" {
			return text("bash session restarted"), false, nil
		}
	}
	if in.Command == "" {
		return nil, false, errors.New("command is required")
	}
	timeout := defaultBashTime
	if in.TimeoutMS > 0 {
		timeout = min(time.Duration(min(in.TimeoutMS, maxBashTime.Milliseconds()))*time.Millisecond, maxBashTime)
	}
	result, failed, err := s.bash(ctx, sandbox, id, in.Command, timeout)
	return text(result), failed, err
}

// callEnv marks the process of a custom tool's call.
const callEnv = "BOTHY_AGENTS_CALL"

// custom is a tool that runs a command of the attachment. The command is a process that outlives
// the server, and is found again by its mark.
func (s *session) custom(t bothy.AgentTool) func(context.Context, string, string, json.RawMessage) ([]block, bool, error) {
	return func(ctx context.Context, sandbox, id string, raw json.RawMessage) ([]block, bool, error) {
		p, err := s.process(ctx, sandbox, func(p bothy.ProcessInfo) bool { return p.Env[callEnv] == id })
		if err != nil {
			return nil, false, err
		}
		pid := 0
		if p != nil {
			pid = p.PID
		} else {
			res, err := s.worker.o.Commands.Exec(ctx, sandbox, bothy.ExecRequest{
				Command: bothy.Command{Line: t.Command}, Env: map[string]string{callEnv: id}, Stdin: string(raw),
				Background: true, MergeStderr: true, TimeoutSeconds: maxBashTime.Seconds(),
			})
			if err != nil {
				return nil, false, err
			}
			pid = res.PID
			_ = failpoint.Hit("agents.started")
		}
		out := tail{}
		code, timedOut := 0, false
		err = s.worker.o.Commands.Output(ctx, sandbox, pid, 0, func(e bothy.ExecEvent) error {
			if e.IsFinal {
				code, timedOut = e.ExitCode, e.TimedOut
				return nil
			}
			return out.add(e)
		})
		if ctx.Err() != nil && cut(ctx) {
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
			defer cancel()
			_ = s.worker.o.Commands.Signal(stop, sandbox, pid, 9)
		}
		if err != nil {
			return nil, false, err
		}
		result := out.text()
		switch {
		case timedOut:
			return text(result + "\n[timed out]"), true, nil
		case code != 0:
			return text(fmt.Sprintf("%s\nexit code: %d", result, code)), true, nil
		}
		return text(result), false, nil
	}
}

// add adds a piece of output without marks.
func (t *tail) add(e bothy.ExecEvent) error {
	data, err := e.Bytes()
	t.buf = append(t.buf, data...)
	t.trim(outputLimit)
	return err
}
