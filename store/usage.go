package store

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// Counts are amounts of each meter. They are whole numbers, so that sums are
// exact in any order.
type Counts [7]int64

// The meters, by their place in Counts.
const (
	// VCPU is vCPU-microseconds that a sandbox had, and CPU CPU-microseconds
	// that it used.
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

// UsageKey is what a count belongs to, apart from its time.
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

// UsageMark says up to when a sandbox has been counted, and what its counters
// stood at.
type UsageMark struct {
	Sandbox string
	// Started is when the sandbox's present run began, in nanoseconds since
	// the epoch. A mark of another run says nothing about this one.
	Started int64
	Moment
	// CPU is in microseconds, Egress and Ingress are in bytes.
	CPU, Egress, Ingress int64
}

// Moment is a point in time that also outlives changes of the clock, as long as
// the host is up.
type Moment struct {
	Wall time.Time `json:"wall"`
	// Boot names the host's present boot, and Uptime counts since it.
	Boot   string        `json:"boot"`
	Uptime time.Duration `json:"uptime"`
}

// UsageBatch is written in one transaction: the counts, and up to when they
// were made.
type UsageBatch struct {
	// ID is never that of another batch. One whose ID is that of the last
	// batch that was written is not written again.
	ID   string
	Rows []UsageRow
	// Marks replace those of the same sandboxes; the marks of Gone are removed.
	Marks []UsageMark
	Gone  []string
	// Storage is up to when snapshots and templates have been counted; nil
	// leaves it as it is.
	Storage *Moment
}

// UsageProgress is how far the last server came.
type UsageProgress struct {
	Marks []UsageMark
	// Storage is nil where nothing was ever counted.
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
	// In narrows it down to the fields that are set. Labels and Root are
	// ignored.
	In UsageKey
	// After is the last group of the page before, and Limit how many groups to
	// return at most; 0 is all of them.
	After *UsageGroup
	Limit int
}

// UsageGroup is one group of an answer.
type UsageGroup struct {
	// At is days or hours since the epoch.
	At                         int64
	Project, Template, Sandbox string
	// Labels are in the order of the query.
	Labels []string
	Counts
}

// CompareUsage is the order of an answer.
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

// Budget limits what a project spends in a month, or a sandbox with everything
// forked from it during its life.
type Budget struct {
	Kind BudgetKind
	// ID is the project, or the sandbox at the root.
	ID      string
	Project string
	Amount  float64
	// Warned and Exceeded are the periods for which this was said already:
	// "2026-01" for a month, "life" for a tree.
	Warned   string
	Exceeded string
}

// Usage stores usage. As with Store, a method returns when its change would
// survive a crash of the server, and all methods may be called from many
// goroutines at once.
type Usage interface {
	// WriteUsage writes a batch whole or not at all. After an error it is not
	// known which; to repeat it with the same ID is then safe.
	WriteUsage(ctx context.Context, b UsageBatch) error
	// UsageProgress returns how far the last server came.
	UsageProgress(ctx context.Context) (UsageProgress, error)
	// PackUsage does one step of packing usage from before an hour into the
	// format from which queries are answered fastest, and reports whether there
	// is more to do. No answer depends on it.
	PackUsage(ctx context.Context, before int64) (more bool, err error)
	// QueryUsage returns groups in the order of CompareUsage.
	QueryUsage(ctx context.Context, q UsageQuery) ([]UsageGroup, error)
	// TreeUsage returns the usage that has been written for a root.
	TreeUsage(ctx context.Context, root string) (Counts, error)

	// PutBudget stores a budget, or replaces it; one of nothing is removed.
	PutBudget(ctx context.Context, b Budget) error
	Budgets(ctx context.Context) ([]Budget, error)
}
