package bothy

import "time"

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
