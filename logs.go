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

// PlanLimits is what the caller's project may use, and what is in use. A nil
// limit is none.
type PlanLimits struct {
	Plan      string   `json:"plan"`
	Sandboxes InUse    `json:"sandboxes"`
	Snapshots InUseMB  `json:"snapshots"`
	Sandbox   PerLimit `json:"sandbox"`
	// CreatesPerMinute bounds how quickly sandboxes are made; 0 is no bound.
	CreatesPerMinute int `json:"creates_per_minute,omitempty"`
	// Budget is nil where there is none.
	Budget *BudgetState `json:"budget,omitempty"`
}

// InUse is a number of things.
type InUse struct {
	Limit *int `json:"limit"`
	Used  int  `json:"used"`
}

// InUseMB is an amount of storage, in MiB.
type InUseMB struct {
	LimitMB *int64 `json:"limit_mb"`
	UsedMB  int64  `json:"used_mb"`
}

// PerLimit is what one sandbox may have at most.
type PerLimit struct {
	CPU            float64 `json:"cpu"`
	MemoryMB       int     `json:"memory_mb"`
	DiskMB         int     `json:"disk_mb"`
	TimeoutSeconds int     `json:"timeout_seconds"`
	// NoTimeout is true where a sandbox may ask for none, with 0.
	NoTimeout bool          `json:"no_timeout"`
	Networks  []NetworkMode `json:"networks"`
}

// LimitsService tells callers how far they may go.
type LimitsService interface {
	Limits(ctx context.Context) (*PlanLimits, error)
}
