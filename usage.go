package bothy

import (
	"context"
	"strings"
	"time"
)

// Usage is what was used. Seconds of a processor, and of a MiB of memory or
// storage, are exact to the millisecond.
type Usage struct {
	// VCPUSeconds are the processors that sandboxes had, times the time for
	// which they ran; CPUSeconds are what they actually used.
	VCPUSeconds float64 `json:"vcpu_seconds"`
	CPUSeconds  float64 `json:"cpu_seconds"`
	// MemoryMBSeconds is the memory that sandboxes had, in MiB, times the time
	// for which they ran.
	MemoryMBSeconds float64 `json:"memory_mb_seconds"`
	// EgressBytes and IngressBytes are the payload that sandboxes sent and
	// received.
	EgressBytes  int64 `json:"egress_bytes"`
	IngressBytes int64 `json:"ingress_bytes"`
	// SnapshotMBSeconds and TemplateMBSeconds are what snapshots and templates
	// took up, each rounded up to a whole MiB, times the time for which they
	// did.
	SnapshotMBSeconds float64 `json:"snapshot_mb_seconds"`
	TemplateMBSeconds float64 `json:"template_mb_seconds"`
	// Cost is all this in money, by the server's rates.
	Cost float64 `json:"cost"`
}

// UsageItem is the usage of one group. The fields that were not grouped by are
// empty.
type UsageItem struct {
	// Day and Hour are when the group's time begins, in UTC: "2026-01-31", or
	// RFC 3339 for an hour.
	Day      string `json:"day,omitempty"`
	Hour     string `json:"hour,omitempty"`
	Project  string `json:"project,omitempty"`
	Template string `json:"template,omitempty"`
	Sandbox  string `json:"sandbox,omitempty"`
	// Labels are the metadata that were grouped by. A sandbox without such a
	// key has the value "".
	Labels map[string]string `json:"labels,omitempty"`
	Usage
}

// UsageReport answers a UsageQuery.
type UsageReport struct {
	// From and To are whole hours: those of the query, widened where they were
	// not.
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	GroupBy []string  `json:"group_by"`
	// Currency is that of every cost.
	Currency string      `json:"currency"`
	Items    []UsageItem `json:"items"`
	// Total is of all items, those of other pages included.
	Total      Usage  `json:"total"`
	NextCursor string `json:"next_cursor,omitempty"`
	// AsOf is up to when everything is counted. It lags behind while the
	// meters cannot be written.
	AsOf time.Time `json:"as_of"`
}

// The words of UsageQuery.GroupBy. UsageByLabel is followed by the metadata's
// key.
const (
	UsageByDay      = "day"
	UsageByHour     = "hour"
	UsageByProject  = "project"
	UsageByTemplate = "template"
	UsageBySandbox  = "sandbox"
	UsageByLabel    = "label:"
)

// UsageQuery asks what was used. Zero values select everything.
type UsageQuery struct {
	// From is the beginning of the present month when zero, and To the present
	// when zero.
	From, To time.Time
	// GroupBy is what the answer is grouped by, in this order; nil is by day.
	GroupBy []string
	// Project is one project; empty is the caller's own, or all for the
	// default project's admin.
	Project string
	// Sandbox and Template narrow it down.
	Sandbox  string
	Template string
	// Limit is the page size, 1 to 10000; 0 means 1000.
	Limit  int
	Cursor string
}

// UsageService tells what projects have used.
type UsageService interface {
	// Usage answers a query: CodeProjectNotFound where the caller may not see
	// the project, and CodeInvalid for what cannot be grouped by.
	Usage(ctx context.Context, q UsageQuery) (*UsageReport, error)
}

// MeterReading is a reading of a sandbox's counters. They only grow.
type MeterReading struct {
	// CPUSeconds counts since the sandbox's machine was started.
	CPUSeconds float64
	NetworkCounters
}

// Rates say what each unit costs. A GB is 1024 MiB.
type Rates struct {
	Currency string
	// VCPUHour is of processors that a sandbox had, and CPUHour of processor
	// time that it really used.
	VCPUHour     float64
	CPUHour      float64
	MemoryGBHour float64
	EgressGB     float64
	IngressGB    float64
	// SnapshotGBHour and TemplateGBHour are of storage.
	SnapshotGBHour float64
	TemplateGBHour float64
}

// Cost is what a usage costs. Its own Cost is not looked at.
func (r Rates) Cost(u Usage) float64 {
	const hour, gb = 3600, 1 << 30
	return u.VCPUSeconds/hour*r.VCPUHour + u.CPUSeconds/hour*r.CPUHour + u.MemoryMBSeconds/1024/hour*r.MemoryGBHour +
		float64(u.EgressBytes)/gb*r.EgressGB + float64(u.IngressBytes)/gb*r.IngressGB +
		u.SnapshotMBSeconds/1024/hour*r.SnapshotGBHour + u.TemplateMBSeconds/1024/hour*r.TemplateGBHour
}

// Free reports whether nothing costs anything.
func (r Rates) Free() bool {
	return r == Rates{Currency: r.Currency}
}

// BudgetState is a budget and what is used of it.
type BudgetState struct {
	Limit    float64 `json:"limit"`
	Used     float64 `json:"used"`
	Currency string  `json:"currency"`
	// ResetsAt is when Used starts over; nil for a budget without a period.
	ResetsAt *time.Time `json:"resets_at,omitempty"`
}

// MaxBudget is the largest budget.
const MaxBudget = 1e12

// CheckBudget refuses an invalid amount. 0 is no budget.
func CheckBudget(amount float64) error {
	if !(amount >= 0 && amount <= MaxBudget) { // refuses NaN, too
		return Errorf(CodeInvalid, "budget is %v", amount).WithHint("Give an amount of money from 0, which is no budget, to %v.", MaxBudget)
	}
	return nil
}

// Group is the value of one of the things that an item was grouped by.
func (i UsageItem) Group(by string) string {
	switch by {
	case UsageByDay:
		return i.Day
	case UsageByHour:
		return i.Hour
	case UsageByProject:
		return i.Project
	case UsageByTemplate:
		return i.Template
	case UsageBySandbox:
		return i.Sandbox
	}
	return i.Labels[strings.TrimPrefix(by, UsageByLabel)]
}

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

// Metrics is what a sandbox uses now.
type Metrics struct {
	Time time.Time `json:"time"`
	// CPUCount is how many processors the sandbox may use, and CPUSeconds what
	// it has used since it was started or last resumed.
	CPUCount         float64 `json:"cpu_count"`
	CPUSeconds       float64 `json:"cpu_seconds"`
	MemoryBytes      int64   `json:"memory_bytes"`
	MemoryLimitBytes int64   `json:"memory_limit_bytes"`
	DiskBytes        int64   `json:"disk_bytes"`
	DiskLimitBytes   int64   `json:"disk_limit_bytes"`
	Processes        int     `json:"processes"`
	NetworkCounters
	// HeldAwakeBy says what keeps an idle_seconds sandbox from being paused:
	// "command", "request", "connection", "terminal" or "cpu". Empty means that it is idle,
	// for IdleForSeconds.
	HeldAwakeBy    []string `json:"held_awake_by,omitempty"`
	IdleForSeconds float64  `json:"idle_for_seconds,omitempty"`
}

// SandboxMetrics is the latest measurement of a sandbox.
type SandboxMetrics struct {
	SandboxID string `json:"sandbox_id"`
	// CPUUsed is how many processors the sandbox has used on average since the
	// measurement before; nil at the first.
	CPUUsed *float64 `json:"cpu_used"`
	Metrics
}

// MetricsService tells what sandboxes use.
type MetricsService interface {
	Metrics(ctx context.Context, id string) (*Metrics, error)
	// MetricsHistory returns the measurements taken every ten seconds between two
	// times, oldest first; a zero time is no limit. At most half an hour is kept, in
	// memory, since the sandbox was last started or resumed, or the server was
	// started. There are none for a sandbox that is not running.
	MetricsHistory(ctx context.Context, id string, from, to time.Time) ([]*Metrics, error)
	// LatestMetrics returns the latest of these of every sandbox of the project that
	// runs and was measured.
	LatestMetrics(ctx context.Context) ([]*SandboxMetrics, error)
}
