package bothy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"time"
)

// Command is what to run: a line for the shell, or an argument vector.
type Command struct {
	// Line is run by `bash -lc`, or by `sh -lc` if the image has no bash.
	Line string
	// Args is run as is. It takes precedence over Line.
	Args []string
}

// UnmarshalJSON reads a string or an array of strings.
func (c *Command) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &c.Line) == nil {
		return nil
	}
	if json.Unmarshal(b, &c.Args) == nil {
		return nil
	}
	return errors.New("command must be a string or an array of strings")
}

// MarshalJSON writes the form that was set.
func (c Command) MarshalJSON() ([]byte, error) {
	if c.Args != nil {
		return json.Marshal(c.Args)
	}
	return json.Marshal(c.Line)
}

// Argv returns the argument vector that is really executed.
func (c Command) Argv() []string {
	if c.Args != nil {
		return c.Args
	}
	return []string{"/bin/bash", "-l", "-c", c.Line}
}

// Bounds of one command.
const (
	// DefaultExecOutputBytes bounds stdout and stderr each in a blocking
	// result; anything beyond is dropped from the middle and Truncated is set.
	DefaultExecOutputBytes = 10 << 20
	// DefaultCwd is where commands start.
	DefaultCwd = "/workspace"
	// DefaultUser runs commands.
	DefaultUser = "user"
)

// ExecRequest is a command to run in a sandbox.
type ExecRequest struct {
	Command Command           `json:"command"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	User    string            `json:"user,omitempty"`
	// TimeoutSeconds kills the command and all it started; 0 means no limit
	// other than the sandbox's own.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
	// Stdin is given to the command, and then end of file.
	Stdin string `json:"stdin,omitempty"`
	// StdinEncoding is "base64" if a caller of the API has encoded Stdin, for
	// bytes that are not UTF-8. The API decodes it.
	StdinEncoding string `json:"stdin_encoding,omitempty"`
	// MergeStderr writes standard error into Stdout, in the order of writing.
	MergeStderr bool `json:"merge_stderr,omitempty"`
	// Background answers as soon as the command has started.
	Background bool `json:"background,omitempty"`
	// KeepRunning lets the command run on when its caller leaves before its end;
	// otherwise it is killed then, with all it started.
	KeepRunning bool `json:"keep_running,omitempty"`
}

// ExecResult is a finished command. For a background command only PID is set.
type ExecResult struct {
	// ExitCode is the command's own, or 128 plus the signal that killed it.
	ExitCode int    `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	// StdoutBase64 and StderrBase64 hold the exact bytes if they are not UTF-8:
	// the text has U+FFFD in their place.
	StdoutBase64 string `json:"stdout_base64,omitempty"`
	StderrBase64 string `json:"stderr_base64,omitempty"`
	DurationMS   int64  `json:"duration_ms"`
	TimedOut     bool   `json:"timed_out"`
	OOMKilled    bool   `json:"oom_killed"`
	// Truncated is true if a limit on output was reached.
	Truncated bool `json:"truncated"`
	PID       int  `json:"pid"`
	// Hint says what to do when the command was killed by a limit.
	Hint string `json:"hint,omitempty"`
}

// ExecEvent is one piece of a streamed command: output, or, with IsFinal, its
// end.
type ExecEvent struct {
	Stream string `json:"stream,omitempty"`
	// Data is the output. Bytes that are not UTF-8 arrive base64-encoded, with
	// Encoding "base64".
	Data     string `json:"data,omitempty"`
	Encoding string `json:"encoding,omitempty"`
	// Offset is the position of Data's first byte in the whole output of the
	// command, both streams together.
	Offset     int64  `json:"offset"`
	PID        int    `json:"pid,omitempty"`
	IsFinal    bool   `json:"is_final,omitempty"`
	ExitCode   int    `json:"exit_code"`
	DurationMS int64  `json:"duration_ms,omitempty"`
	TimedOut   bool   `json:"timed_out,omitempty"`
	OOMKilled  bool   `json:"oom_killed,omitempty"`
	Truncated  bool   `json:"truncated,omitempty"`
	Hint       string `json:"hint,omitempty"`
}

// Bytes returns the output as it was written.
func (e ExecEvent) Bytes() ([]byte, error) {
	if e.Encoding == "base64" {
		return base64.StdEncoding.DecodeString(e.Data)
	}
	return []byte(e.Data), nil
}

// MaxProcessPorts bounds the ports of one process.
const MaxProcessPorts = 64

// ProcessInfo describes a process: one started through the API or, when all are
// listed, any.
type ProcessInfo struct {
	PID     int               `json:"pid"`
	Command []string          `json:"command"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	User    string            `json:"user,omitempty"`
	Tag     string            `json:"tag,omitempty"`
	// Terminal is set if it has a terminal, which can be attached to.
	Terminal  bool `json:"terminal,omitempty"`
	Running   bool `json:"running"`
	ExitCode  *int `json:"exit_code,omitempty"`
	TimedOut  bool `json:"timed_out,omitempty"`
	OOMKilled bool `json:"oom_killed,omitempty"`
	// OutputStart and OutputEnd bound the output that is still held, as byte
	// offsets.
	OutputStart int64 `json:"output_start"`
	OutputEnd   int64 `json:"output_end"`
	// The following fields are set only when all processes are listed. Unmanaged is set
	// if the process was not started through the API: nothing is then known about its
	// output and end.
	Unmanaged   bool       `json:"unmanaged,omitempty"`
	ParentPID   int        `json:"parent_pid,omitempty"`
	StartedAt   *time.Time `json:"started_at,omitempty"`
	CPUSeconds  float64    `json:"cpu_seconds,omitempty"`
	MemoryBytes int64      `json:"memory_bytes,omitempty"`
	// Ports are the TCP ports on which it listens, sorted, at most MaxProcessPorts.
	Ports []int `json:"ports,omitempty"`
}

// TerminalRequest opens a PTY.
type TerminalRequest struct {
	Command Command           `json:"command"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	User    string            `json:"user,omitempty"`
	Cols    int               `json:"cols,omitempty"`
	Rows    int               `json:"rows,omitempty"`
	// Process joins the terminal of a process instead of opening one, and From
	// is the byte offset in its output to begin at.
	Process int   `json:"process,omitempty"`
	From    int64 `json:"from,omitempty"`
	// Keep leaves what runs in the terminal running when the caller leaves, to be joined at
	// any time, also by another server. It ends by itself or by a signal.
	Keep bool `json:"keep,omitempty"`
}

// KeptTag is the tag of processes whose terminal was opened with Keep.
const KeptTag = "kept"

// A Detacher is a terminal that can be left without hanging up, to be joined
// again.
type Detacher interface {
	Detach() error
}

// Terminal is an open PTY. Read and Write move its bytes; Close hangs up.
type Terminal interface {
	io.ReadWriteCloser
	// Resize sets the window.
	Resize(cols, rows int) error
	// PID is the process that the terminal runs.
	PID() int
	// Wait returns the exit code once the process has ended.
	Wait() (int, error)
}

// ExecService runs commands. A method returns two kinds of failure apart: an
// error when the command could not be run or followed, and an exit code when
// it ran.
type ExecService interface {
	// Exec runs a command to its end, or starts it when Background is set. When
	// ctx ends before that, the command is killed, unless KeepRunning is set.
	Exec(ctx context.Context, id string, req ExecRequest) (*ExecResult, error)
	// ExecStream calls fn for every piece of output as it arrives and for the
	// end. When ctx ends or fn fails, the command is killed, unless KeepRunning
	// is set.
	ExecStream(ctx context.Context, id string, req ExecRequest, fn func(ExecEvent) error) error
	// Processes lists commands that were started through the API and are
	// running, or have ended with output still buffered.
	Processes(ctx context.Context, id string) ([]ProcessInfo, error)
	// AllProcesses lists these and every other process that runs in the sandbox.
	AllProcesses(ctx context.Context, id string) ([]ProcessInfo, error)
	// Output calls fn for the output held from a byte offset on, then follows
	// the process to its end. Leaving does not touch the process.
	Output(ctx context.Context, id string, pid int, from int64, fn func(ExecEvent) error) error
	// Stdin writes to a background process; eof closes its input after that.
	Stdin(ctx context.Context, id string, pid int, data []byte, eof bool) error
	// Signal sends a signal, by number, to the process group of a command that
	// was started through the API, or to any other process.
	Signal(ctx context.Context, id string, pid int, signal int) error
	// Wait returns when what is waited for is there, or its time is up. It fails if the
	// request's process ends first.
	Wait(ctx context.Context, id string, req WaitRequest) (*WaitResult, error)
	// Terminal opens a PTY.
	Terminal(ctx context.Context, id string, req TerminalRequest) (Terminal, error)
}

// Bounds of one wait.
const (
	DefaultWaitSeconds = 60
	MaxWaitSeconds     = 600
	// MaxWaitText bounds the text or expression that is looked for.
	MaxWaitText = 4096
)

// WaitRequest says what to wait for in a sandbox: one of Port, URL and Log, or, without these, the
// end of the process PID.
type WaitRequest struct {
	// Port waits until a server on the sandbox's loopback accepts connections.
	Port int `json:"port,omitempty"`
	// URL waits until a GET request from inside is answered with Status, or, if that is 0,
	// with any from 200 to 399. Redirects are not followed, and certificates not checked.
	URL    string `json:"url,omitempty"`
	Status int    `json:"status,omitempty"`
	// Log waits for a line that contains this text, or, with Regex, matches it: of the output
	// of PID, or of the file Path.
	Log   string `json:"log,omitempty"`
	Regex bool   `json:"regex,omitempty"`
	Path  string `json:"path,omitempty"`
	// User reads the file.
	User string `json:"user,omitempty"`
	// PID ends the wait with an error when this process ends before what is waited for.
	PID            int     `json:"pid,omitempty"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
}

// WaitResult says what came.
type WaitResult struct {
	// TimedOut is true if the time was up first. All else is then empty.
	TimedOut bool `json:"timed_out"`
	// Line is the line that was found, shortened if it is very long.
	Line string `json:"line,omitempty"`
	// Status is that of the URL's answer.
	Status int `json:"status,omitempty"`
	// ExitCode is that of the process, if it was started through the API.
	ExitCode   *int  `json:"exit_code,omitempty"`
	DurationMS int64 `json:"duration_ms"`
}
