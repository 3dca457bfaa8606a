package lifecycle

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Meter counts what sandboxes use, and knows which of them may run.
type Meter interface {
	// Starting returns the MeterState of a sandbox that is about to be stored
	// as running, where counting begins.
	Starting(ctx context.Context, sb *store.Sandbox, read func(context.Context) (bothy.MeterReading, error)) []byte
	// Started counts a sandbox from its MeterState on, or one that is adopted
	// from where the last server stopped to. read tells its counters, for as
	// long as it runs.
	Started(ctx context.Context, sb *store.Sandbox, read func(context.Context) (bothy.MeterReading, error), adopted bool)
	// Changed tells of new metadata and of a new budget.
	Changed(ctx context.Context, sb *store.Sandbox)
	// Stopped is called before a machine is given up, or after it has ended.
	Stopped(ctx context.Context, id string)
	// Recovered is called once what the last server left has been started.
	Recovered()
	SnapshotDeleted(ctx context.Context, n *bothy.Snapshot)

	// Allow refuses a sandbox whose budgets are used up, with CodeBudget.
	Allow(sb *store.Sandbox) error
	// CheckBudget refuses what cannot be a budget.
	CheckBudget(amount float64) error
	SetTreeBudget(ctx context.Context, root, project string, amount float64) error
	// Trees are the roots that have a budget.
	Trees() []string
	// ProjectBudget and TreeBudget return nil where there is none.
	ProjectBudget(project string) *bothy.BudgetState
	TreeBudget(root string) *bothy.BudgetState
}

// noMeter counts nothing and allows everything.
type noMeter struct{}

func (noMeter) Starting(context.Context, *store.Sandbox, func(context.Context) (bothy.MeterReading, error)) []byte {
	return nil
}

func (noMeter) Started(context.Context, *store.Sandbox, func(context.Context) (bothy.MeterReading, error), bool) {
}
func (noMeter) Changed(context.Context, *store.Sandbox)          {}
func (noMeter) Stopped(context.Context, string)                  {}
func (noMeter) Recovered()                                       {}
func (noMeter) SnapshotDeleted(context.Context, *bothy.Snapshot) {}
func (noMeter) Allow(*store.Sandbox) error                       { return nil }
func (noMeter) ProjectBudget(string) *bothy.BudgetState          { return nil }
func (noMeter) Trees() []string                                  { return nil }
func (noMeter) TreeBudget(string) *bothy.BudgetState             { return nil }

func (noMeter) CheckBudget(amount float64) error {
	if amount == 0 {
		return nil
	}
	return bothy.Errorf(bothy.CodeUnsupported, "this server does not meter, so it keeps no budgets").WithHint("Leave budget out.")
}

func (m noMeter) SetTreeBudget(_ context.Context, _, _ string, amount float64) error {
	return m.CheckBudget(amount)
}
