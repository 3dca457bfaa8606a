package lifecycle

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Meter meters what sandboxes use, and enforces budgets.
type Meter interface {
	// Starting returns the MeterState of a sandbox that is about to be stored as running: the
	// readings at which metering starts.
	Starting(ctx context.Context, sb *store.Sandbox, read func(context.Context) (bothy.MeterReading, error)) []byte
	// Started starts metering a sandbox at its MeterState, or, if adopted, where the previous
	// server stopped. read returns its counters while it runs.
	Started(ctx context.Context, sb *store.Sandbox, read func(context.Context) (bothy.MeterReading, error), adopted bool)
	// Changed announces new metadata or a new budget.
	Changed(ctx context.Context, sb *store.Sandbox)
	// Stopped is called before a machine is given up, or after it has ended.
	Stopped(ctx context.Context, id string)
	// Recovered is called once the previous server's sandboxes have been recovered.
	Recovered()
	SnapshotDeleted(ctx context.Context, n *bothy.Snapshot)

	// Allow returns an error with CodeBudget if the sandbox's budgets are exhausted.
	Allow(sb *store.Sandbox) error
	// CheckBudget returns an error if the amount is not valid for a budget.
	CheckBudget(amount float64) error
	SetTreeBudget(ctx context.Context, root, project string, amount float64) error
	// Trees returns the root sandboxes that have a budget.
	Trees() []string
	// ProjectBudget and TreeBudget return nil if there is no budget.
	ProjectBudget(project string) *bothy.BudgetState
	TreeBudget(root string) *bothy.BudgetState
}

// noMeter meters nothing and allows everything.
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
	return bothy.Errorf(bothy.CodeUnsupported, "this server does not meter usage, so it has no budgets").WithHint("Omit budget.")
}

func (m noMeter) SetTreeBudget(_ context.Context, _, _ string, amount float64) error {
	return m.CheckBudget(amount)
}
