package bothy

import "context"

// LogEntry is a piece of output of a command that was started through the API.
type LogEntry struct {
	PID int `json:"pid"`
	// Stream is stdout, stderr or pty.
	Stream string `json:"stream"`
	// Data is the output. Bytes that are not UTF-8 arrive base64-encoded, with
	// Encoding "base64".
	Data     string `json:"data"`
	Encoding string `json:"encoding,omitempty"`
	// Offset is the position of Data's first byte in the whole output of the
	// command, both streams together.
	Offset int64 `json:"offset"`
}

// Logs is the output that a sandbox still holds.
type Logs struct {
	Items []LogEntry `json:"items"`
	// Truncated is true where output was dropped, by the sandbox or to keep
	// the answer short.
	Truncated bool `json:"truncated"`
}

// LogService shows the output of commands.
type LogService interface {
	// Logs returns the output of the process, or of all when pid is 0, by
	// process in the order of their start.
	Logs(ctx context.Context, id string, pid int) (*Logs, error)
}
