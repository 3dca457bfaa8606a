package bothy

import (
	"context"
	"time"
)

// DefaultLanguage is what code is written in unless the caller says otherwise.
const DefaultLanguage = "python"

// CodeRequest is a piece of code to run in a context, where variables stay from
// one piece to the next.
type CodeRequest struct {
	Code string `json:"code"`
	// Language is python, javascript or bash, if the template has it. With a
	// ContextID it may be left out.
	Language string `json:"language,omitempty"`
	// ContextID is where the code runs: by default in the language's default
	// context.
	ContextID string `json:"context_id,omitempty"`
	// TimeoutSeconds interrupts the code; 0 means no limit other than the
	// sandbox's own.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
	// Env is set while the code runs.
	Env map[string]string `json:"env,omitempty"`

	// Quiet code is not counted and its results are not shown: it prepares a context.
	Quiet bool `json:"-"`
}

// CodeOutput is something that code displayed, by MIME type: text as is, binary
// formats such as image/png in base64, JSON as text.
type CodeOutput map[string]string

// CodeError is the exception that ended a piece of code.
type CodeError struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

// CodeResult is a finished piece of code. An exception in the code is a result.
type CodeResult struct {
	// Results are what the code displayed, in order; the value of its last
	// expression comes last.
	Results []CodeOutput `json:"results"`
	Stdout  string       `json:"stdout"`
	Stderr  string       `json:"stderr"`
	Error   *CodeError   `json:"error,omitempty"`
	// ExitCode is the exit code of the shell's last command, or of the shell
	// itself; only bash code has one.
	ExitCode *int `json:"exit_code,omitempty"`
	// ExecutionCount is the number of this piece in its context, from 1.
	ExecutionCount int    `json:"execution_count"`
	DurationMS     int64  `json:"duration_ms"`
	TimedOut       bool   `json:"timed_out,omitempty"`
	OOMKilled      bool   `json:"oom_killed,omitempty"`
	Truncated      bool   `json:"truncated,omitempty"`
	ContextID      string `json:"context_id"`
	// Hint says what to do when a limit ended the code.
	Hint string `json:"hint,omitempty"`
}

// CodeEvent is one piece of what code that is streamed gives: output, something
// displayed, or, with IsFinal, the end.
type CodeEvent struct {
	Stream         string       `json:"stream,omitempty"` // stdout or stderr
	Data           string       `json:"data,omitempty"`
	Results        []CodeOutput `json:"results,omitempty"`
	IsFinal        bool         `json:"is_final,omitempty"`
	Error          *CodeError   `json:"error,omitempty"`
	ExitCode       *int         `json:"exit_code,omitempty"`
	ExecutionCount int          `json:"execution_count,omitempty"`
	DurationMS     int64        `json:"duration_ms,omitempty"`
	TimedOut       bool         `json:"timed_out,omitempty"`
	OOMKilled      bool         `json:"oom_killed,omitempty"`
	Truncated      bool         `json:"truncated,omitempty"`
	ContextID      string       `json:"context_id,omitempty"`
	Hint           string       `json:"hint,omitempty"`

	// IsValue says that Results is the value of the last expression, and not something
	// that was displayed.
	IsValue bool `json:"-"`
}

// CodeContextCreate is a request for a context of one's own.
type CodeContextCreate struct {
	Language string `json:"language,omitempty"`
	Cwd      string `json:"cwd,omitempty"`
}

// CodeContext is a place where code runs and variables stay.
type CodeContext struct {
	ID        string    `json:"id"`
	Language  string    `json:"language"`
	Cwd       string    `json:"cwd,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// CodeService runs code in contexts. Pieces of code in one context run one
// after the other, those in different contexts at once. An unknown context is
// CodeContextNotFound, and a language that the template lacks CodeUnsupported.
type CodeService interface {
	// RunCode runs a piece of code to its end. When ctx ends, the code is
	// interrupted.
	RunCode(ctx context.Context, id string, req CodeRequest) (*CodeResult, error)
	// RunCodeStream calls fn for everything that the code gives as it comes,
	// and for the end. When ctx ends or fn fails, the code is interrupted.
	RunCodeStream(ctx context.Context, id string, req CodeRequest, fn func(CodeEvent) error) error
	CreateContext(ctx context.Context, id string, req CodeContextCreate) (*CodeContext, error)
	Contexts(ctx context.Context, id string) ([]CodeContext, error)
	// DeleteContext ends a context; its variables are gone.
	DeleteContext(ctx context.Context, id, contextID string) error
	// InterruptContext stops the code that runs in a context, or that is next
	// while the interpreter starts, as Ctrl-C does. If there is none, the error
	// is CodeConflict.
	InterruptContext(ctx context.Context, id, contextID string) error
	// RestartContext makes a context as new.
	RestartContext(ctx context.Context, id, contextID string) error
}

// CodeRunner is implemented by a Guest that can run code: the methods of
// CodeService, for its one sandbox.
type CodeRunner interface {
	RunCode(ctx context.Context, req CodeRequest) (*CodeResult, error)
	RunCodeStream(ctx context.Context, req CodeRequest, fn func(CodeEvent) error) error
	CreateContext(ctx context.Context, req CodeContextCreate) (*CodeContext, error)
	Contexts(ctx context.Context) ([]CodeContext, error)
	DeleteContext(ctx context.Context, contextID string) error
	InterruptContext(ctx context.Context, contextID string) error
	RestartContext(ctx context.Context, contextID string) error
}

// DefaultShell is the id of the kept shell that each sandbox has without being asked for.
const DefaultShell = "default"

// ShellCreate is a request for a kept shell.
type ShellCreate struct {
	Cwd string `json:"cwd,omitempty"`
}

// Shell is a persistent bash: its directory and variables are kept for the next
// command. It is a context of CodeService whose language is bash.
type Shell struct {
	ID        string    `json:"id"`
	Cwd       string    `json:"cwd,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// ShellRequest is a command for a kept shell.
type ShellRequest struct {
	Command string `json:"command"`
	// TimeoutSeconds ends the command, and not the shell; 0 means no limit other than
	// the sandbox's own.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
}

// ShellResult is a command that ended in a kept shell.
type ShellResult struct {
	// ExitCode is the exit code of the last command, or, after exit, of the
	// shell.
	ExitCode   int    `json:"exit_code"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	DurationMS int64  `json:"duration_ms"`
	TimedOut   bool   `json:"timed_out"`
	OOMKilled  bool   `json:"oom_killed"`
	Truncated  bool   `json:"truncated"`
	// Ended is set if the shell itself has ended. The next command gets a new one.
	Ended bool   `json:"ended"`
	Hint  string `json:"hint,omitempty"`
}

// ShellEvent is a streamed piece of the output of a command in a kept shell, or its end:
// then IsFinal is set, and ExitCode and DurationMS are not nil.
type ShellEvent struct {
	Stream     string `json:"stream,omitempty"`
	Data       string `json:"data,omitempty"`
	IsFinal    bool   `json:"is_final,omitempty"`
	ExitCode   *int   `json:"exit_code,omitempty"`
	DurationMS *int64 `json:"duration_ms,omitempty"`
	TimedOut   bool   `json:"timed_out,omitempty"`
	OOMKilled  bool   `json:"oom_killed,omitempty"`
	Truncated  bool   `json:"truncated,omitempty"`
	Ended      bool   `json:"ended,omitempty"`
	Hint       string `json:"hint,omitempty"`
}

// ShellContext returns the id of a shell's code context.
func ShellContext(id string) string {
	if id == DefaultShell {
		return "bash"
	}
	return id
}

// InShell returns the code that a command in a kept shell is.
func (r ShellRequest) InShell(id string) (CodeRequest, error) {
	if r.Command == "" {
		return CodeRequest{}, Errorf(CodeInvalid, "command is empty").WithHint("Give a line for bash, such as \"ls -l\".")
	}
	req := CodeRequest{Code: r.Command, Language: "bash", TimeoutSeconds: r.TimeoutSeconds}
	if id != DefaultShell {
		req.ContextID = id
	}
	return req, nil
}

// Shell returns the result of code that was a command in a kept shell.
func (r *CodeResult) Shell() *ShellResult {
	res := &ShellResult{
		Stdout: r.Stdout, Stderr: r.Stderr, DurationMS: r.DurationMS,
		TimedOut: r.TimedOut, OOMKilled: r.OOMKilled, Truncated: r.Truncated, Hint: r.Hint,
	}
	res.end(r.ExitCode, r.Error)
	return res
}

// Shell returns the last event of code that was a command in a kept shell as a result
// without output.
func (e CodeEvent) Shell() *ShellResult {
	res := &ShellResult{DurationMS: e.DurationMS, TimedOut: e.TimedOut, OOMKilled: e.OOMKilled, Truncated: e.Truncated, Hint: e.Hint}
	res.end(e.ExitCode, e.Error)
	return res
}

func (r *ShellResult) end(exitCode *int, err *CodeError) {
	if err != nil {
		r.ExitCode = 1
		killed := err.Name == "TimeoutError" && exitCode != nil && *exitCode != 0
		r.Ended = err.Name == "KernelDied" || killed
	}
	if exitCode != nil {
		r.ExitCode = *exitCode
	}
	if r.TimedOut && r.ExitCode == 0 { // a program that ends well when it is interrupted
		r.ExitCode = 130
	}
	if r.Ended && r.Hint == "" {
		r.Hint = "The shell has ended, and its directory and variables are gone; the next command gets a new one."
	}
}
