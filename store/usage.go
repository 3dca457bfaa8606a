package store

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// Counts are amounts of each meter. They are integers, so that sums are exact in any order.
type Counts [7]int64

// The meters, by their place in Counts.
const (
	// VCPU is the vCPU-microseconds that a sandbox was given, and CPU the CPU-microseconds that
	// it used.
	VCPU = iota
	CPU
	// Memory is MiB-milliseconds.
	Memory
	// Egress and Ingress are bytes.
	Egress
	Ingress
	// Snapshots and Templates are MiB-milliseconds.
	Snapshots
	Templates
)

// Add adds o to c.
func (c *Counts) Add(o Counts) {
	for i := range c {
		c[i] += o[i]
	}
}

// UsageKey identifies what a count belongs to, apart from its time.
type UsageKey struct {
	Project  string
	Template string
	Sandbox  string
	// Labels are the metadata that the sandbox had, as JSON with sorted keys;
	// empty for none.
	Labels string
	// Root is the sandbox whose budget it counts against, if any.
	Root string
}

// UsageRow is the usage of one hour.
type UsageRow struct {
	UsageKey
	// Hour is hours since the epoch.
	Hour int64
	Counts
}

// UsageMark says up to when a sandbox has been metered, and its counters at that time.
type UsageMark struct {
	Sandbox string
	// Started is when the sandbox's run began, in nanoseconds since the epoch. A mark of
	// another run does not apply.
	Started int64
	Moment
	// CPU is in microseconds, Egress and Ingress are in bytes.
	CPU, Egress, Ingress int64
}

// Moment is a point in time that is robust against changes of the clock while the host is up.
type Moment struct {
	Wall time.Time `json:"wall"`
	// Boot identifies the host's boot, and Uptime is the time since it.
	Boot   string        `json:"boot"`
	Uptime time.Duration `json:"uptime"`
}

// UsageBatch is written in one transaction: counts, and up to when they were metered.
type UsageBatch struct {
	// ID is unique to the batch. A batch with the same ID as the last written one is not
	// written again.
	ID   string
	Rows []UsageRow
	// Marks replace those of the same sandboxes; the marks of Gone are removed.
	Marks []UsageMark
	Gone  []string
	// Storage is up to when snapshots and templates have been metered; nil leaves it unchanged.
	Storage *Moment
}

// UsageProgress is how far the previous server metered.
type UsageProgress struct {
	Marks []UsageMark
	// Storage is nil if nothing was ever metered.
	Storage *Moment
}

// UsageQuery selects and groups counts.
type UsageQuery struct {
	// From and To are hours since the epoch; To is not included.
	From, To int64
	// Day, Hour, Project, Template, Sandbox and Labels are what to group by.
	// Hour wins over Day.
	Day, Hour, Project, Template, Sandbox bool
	Labels                                []string
	// In restricts the query to the fields that are set. Labels and Root are ignored.
	In UsageKey
	// After is the last group of the previous page, and Limit the maximum number of groups; 0
	// means all.
	After *UsageGroup
	Limit int
}

// UsageGroup is one group of a result.
type UsageGroup struct {
	// At is days or hours since the epoch.
	At                         int64
	Project, Template, Sandbox string
	// Labels are in the order of the query.
	Labels []string
	Counts
}

// CompareUsage is the order of a result.
func CompareUsage(a, b UsageGroup) int {
	return cmp.Or(cmp.Compare(a.At, b.At), strings.Compare(a.Project, b.Project), strings.Compare(a.Sandbox, b.Sandbox),
		strings.Compare(a.Template, b.Template), slices.Compare(a.Labels, b.Labels))
}

// BudgetKind says what a budget limits.
type BudgetKind string

// The kinds of budgets.
const (
	BudgetProject BudgetKind = "project"
	BudgetTree    BudgetKind = "tree"
)

// Budget limits what a project spends in a month, or what a sandbox and everything forked from
// it spends in total.
type Budget struct {
	Kind BudgetKind
	// ID is the project, or the sandbox at the root.
	ID      string
	Project string
	Amount  float64
	// Warned and Exceeded are the periods for which that was already announced: "2026-01" for a
	// month, "life" for a tree.
	Warned   string
	Exceeded string
}

// Usage stores usage. As with Store, a method returns once its change would survive a crash of
// the server, and all methods are safe for concurrent use.
type Usage interface {
	// WriteUsage writes a batch atomically. After an error it is unknown whether it was
	// written; repeating it with the same ID is then safe.
	WriteUsage(ctx context.Context, b UsageBatch) error
	// UsageProgress returns how far the previous server metered.
	UsageProgress(ctx context.Context) (UsageProgress, error)
	// QueryUsage returns groups in the order of CompareUsage.
	QueryUsage(ctx context.Context, q UsageQuery) ([]UsageGroup, error)
	// TreeUsage returns the stored usage of a root.
	TreeUsage(ctx context.Context, root string) (Counts, error)

	// PutBudget stores or replaces a budget; one with amount 0 is deleted.
	PutBudget(ctx context.Context, b Budget) error
	Budgets(ctx context.Context) ([]Budget, error)
}
