package lifecycle

import (
	"context"
	"slices"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// retryAfter is when to retry a call that came at the wrong time.
const retryAfter = 5 * time.Second

// wrongState says why a sandbox cannot be used now.
func (s *Service) wrongState(sb *store.Sandbox) error {
	if err := s.departures.elsewhere(sb.ID); err != nil {
		return err
	}
	switch {
	case sb.State.Ended() && sb.Ended != nil:
		e := bothy.Errorf(bothy.CodeSandboxEnded, "sandbox %s has ended (%s): %s", sb.ID, sb.Ended.Reason, sb.Ended.Detail)
		if sb.State == bothy.StateFailed {
			return e.WithHint("Start it again from the beginning: POST /v1/sandboxes/%s/restart, or create a new sandbox.", sb.ID)
		}
		return e.WithHint("Create a new sandbox.")
	case sb.State == bothy.StatePaused || sb.State == bothy.StatePausing:
		return bothy.Errorf(bothy.CodeSandboxPaused, "sandbox %s is paused", sb.ID).
			WithHint("Resume it first: POST /v1/sandboxes/%s/resume, or create it with auto_resume.", sb.ID)
	}
	e := bothy.Errorf(bothy.CodeSandboxNotReady, "sandbox %s is %s", sb.ID, sb.State).WithHint("Try again in a moment.")
	if why := s.whyUnattached(sb.ID); why != "" && sb.State == bothy.StateRunning {
		e = bothy.Errorf(bothy.CodeSandboxNotReady, "sandbox %s cannot be used since the server restarted: %s", sb.ID, why).
			WithHint("The server keeps trying, so try again in a moment; or delete the sandbox.")
	}
	e.RetryAfter = retryAfter
	return e
}

// Get returns one sandbox.
func (s *Service) Get(ctx context.Context, id string) (*bothy.Sandbox, error) {
	sb, err := s.ledger.Find(ctx, id, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, err
	}
	return s.public(sb, s.budgetsOf(ctx, sb)), nil
}

// List returns a page of the caller's sandboxes.
func (s *Service) List(ctx context.Context, f bothy.SandboxFilter) (bothy.Page[*bothy.Sandbox], error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return bothy.Page[*bothy.Sandbox]{}, err
	}
	p, err := s.o.Store.Sandboxes(ctx, caller.ProjectID, f)
	shown := bothy.Page[*bothy.Sandbox]{Items: []*bothy.Sandbox{}, NextCursor: p.NextCursor}
	budgets := s.budgetsOf(ctx, p.Items...)
	for _, sb := range p.Items {
		if now := s.ledger.Unsaved(sb.ID); now != nil {
			sb = now
		}
		if len(f.States) == 0 || slices.Contains(f.States, sb.State) {
			shown.Items = append(shown.Items, s.public(sb, budgets))
		}
	}
	return shown, err
}

// public returns what a client sees of a row, with the current budget of the sandbox's tree, and what
// is wrong with its machine if that runs here.
func (s *Service) public(row *store.Sandbox, budgets func(root string) float64) *bothy.Sandbox {
	sb := row.Public()
	if sb == nil {
		return nil
	}
	sb.Health = s.health(sb.ID)
	if sb.BudgetRoot != "" {
		sb.Budget = budgets(sb.BudgetRoot)
	}
	return sb
}

// budgetsOf returns the budgets of trees. With other hosts they are read from the store: one of those may
// just have changed them.
func (s *Service) budgetsOf(ctx context.Context, rows ...*store.Sandbox) func(root string) float64 {
	here := func(root string) float64 {
		if b := s.o.Meter.TreeBudget(root); b != nil {
			return b.Limit
		}
		return 0
	}
	var roots []string
	for _, sb := range rows {
		if sb.BudgetRoot != "" {
			roots = append(roots, sb.BudgetRoot)
		}
	}
	if len(roots) == 0 {
		return here
	}
	stored, err := s.o.Cluster.TreeBudgets(ctx, roots)
	if err != nil || stored == nil {
		return here
	}
	return func(root string) float64 {
		if slices.Contains(roots, root) {
			return stored[root]
		}
		return here(root)
	}
}

func (s *Service) findSnapshot(ctx context.Context, id string, scope bothy.Scope) (*bothy.Snapshot, error) {
	caller, err := bothy.Require(ctx, scope)
	if err != nil {
		return nil, err
	}
	n, err := s.o.Store.Snapshot(ctx, id)
	if err != nil {
		return nil, err
	}
	if n.ProjectID != caller.ProjectID {
		return nil, bothy.NoSnapshot(id)
	}
	return n, nil
}

// ignoreNotFound returns err unless it means that the sandbox is no longer stored.
func ignoreNotFound(err error) error {
	if bothy.ErrorCode(err) == bothy.CodeSandboxNotFound {
		return nil
	}
	return err
}
