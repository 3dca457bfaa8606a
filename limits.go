package bothy

import "context"

// PlanLimits is what the caller's project may use, and what is in use. A nil
// limit means no limit.
type PlanLimits struct {
	Plan      string   `json:"plan"`
	Sandboxes InUse    `json:"sandboxes"`
	Snapshots InUseMB  `json:"snapshots"`
	Templates InUseMB  `json:"templates"` // the project's own
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
	// NoTimeout is true if a sandbox may have none, requested with 0.
	NoTimeout bool          `json:"no_timeout"`
	Networks  []NetworkMode `json:"networks"`
}

// LimitsService tells callers how far they may go.
type LimitsService interface {
	Limits(ctx context.Context) (*PlanLimits, error)
}
