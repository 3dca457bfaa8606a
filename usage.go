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
