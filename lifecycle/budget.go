package lifecycle

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// budgetRetry is the pause after a failed attempt to pause a sandbox.
const budgetRetry = time.Minute

// PauseOverBudget pauses the running sandboxes of a project or, with a root, of that sandbox's
// tree. A sandbox that cannot be paused keeps running and is tried again later: it is never
// ended for exceeding a budget.
func (s *Service) PauseOverBudget(ctx context.Context, project, root string) {
	now := s.clock.Now()
	s.mu.Lock()
	var ids []string
	for id, l := range s.instances {
		if l.Project == project && (root == "" || l.Root == root) && !now.Before(l.PauseAfter) {
			ids = append(ids, id)
		}
	}
	s.mu.Unlock()
	for _, id := range ids {
		if ctx.Err() != nil {
			return
		}
		s.pauseOver(context.WithoutCancel(ctx), id)
	}
}

func (s *Service) pauseOver(ctx context.Context, id string) {
	unlock, err := s.ledger.LockToWork(ctx, id)
	if err != nil {
		return // the meter calls again
	}
	defer unlock()
	sb, err := s.ledger.Sandbox(ctx, id)
	if err != nil || sb.State != bothy.StateRunning || s.o.Meter.Allow(sb) == nil {
		return
	}
	// An exhausted snapshot quota must not be a way to keep running.
	_, err = s.pauseLocked(beyondQuota(ctx), id, bothy.PauseOptions{})
	if err == nil {
		s.log.Info("paused a sandbox whose budget is exhausted", "sandbox", id)
		return
	}
	s.log.Error("cannot pause a sandbox whose budget is exhausted", "sandbox", id, "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.instances[id]; l != nil {
		l.PauseAfter = s.clock.Now().Add(budgetRetry)
	}
}

// EmitEvent records an event of a project.
func (s *Service) EmitEvent(ctx context.Context, typ, project, sandbox string, data map[string]string) {
	s.ledger.EmitFor(ctx, typ, sandbox, project, data)
}

// joinBudget makes a sandbox part of the tree with this root, if any, for a request with a budget.
func joinBudget(sb *store.Sandbox, amount float64, root string) error {
	if amount != 0 && root != "" {
		return invalid("the sandbox counts against the budget of its ancestor, sandbox %s", root).
			WithHint("Omit budget, or change that sandbox's budget.")
	}
	sb.BudgetRoot = root
	return nil
}

// giveBudget makes a sandbox that is about to start the root of a tree with its own budget, if any.
func (s *Service) giveBudget(ctx context.Context, sb *store.Sandbox, amount float64) error {
	if amount == 0 {
		return nil
	}
	if err := s.o.Meter.CheckBudget(amount); err != nil {
		return err
	}
	sb.Budget, sb.BudgetRoot = amount, sb.ID
	return s.o.Meter.SetTreeBudget(ctx, sb.ID, sb.ProjectID, amount)
}

// dropBudget undoes giveBudget.
func (s *Service) dropBudget(ctx context.Context, sb *store.Sandbox) {
	if sb.BudgetRoot != sb.ID || sb.ID == "" {
		return
	}
	if err := s.o.Meter.SetTreeBudget(ctx, sb.ID, sb.ProjectID, 0); err != nil {
		s.log.Warn("cannot untrack the budget of a sandbox that did not start", "sandbox", sb.ID, "error", err)
	}
}

// rootOf returns the root of the budget tree of a snapshot's sandbox.
func (s *Service) rootOf(ctx context.Context, n *bothy.Snapshot) string {
	sb, err := s.ledger.Sandbox(ctx, n.SandboxID)
	if err != nil || sb.ProjectID != n.ProjectID {
		return ""
	}
	return sb.BudgetRoot
}

// changeBudget changes the budget of a sandbox's tree.
func (s *Service) changeBudget(ctx context.Context, sb *store.Sandbox, amount float64) error {
	if sb.BudgetRoot == "" {
		if amount == 0 {
			return nil
		}
		if err := s.o.Meter.CheckBudget(amount); err != nil {
			return err
		}
		sb.BudgetRoot = sb.ID
	}
	sb.Budget = amount
	return s.o.Meter.SetTreeBudget(ctx, sb.BudgetRoot, sb.ProjectID, amount)
}

// budgetOf returns what the tree of a sandbox may spend; 0 means no limit.
func (s *Service) budgetOf(sb *store.Sandbox) float64 {
	if sb.BudgetRoot == "" {
		return 0
	}
	if b := s.o.Meter.TreeBudget(sb.BudgetRoot); b != nil {
		return b.Limit
	}
	return 0
}

// restoreBudget undoes changeBudget.
func (s *Service) restoreBudget(ctx context.Context, sb *store.Sandbox, limit float64) {
	root := sb.BudgetRoot
	if root == "" {
		root = sb.ID
	}
	if err := s.o.Meter.SetTreeBudget(ctx, root, sb.ProjectID, limit); err != nil {
		s.log.Warn("cannot undo the change of a budget", "sandbox", sb.ID, "error", err)
	}
}

// checkRoomToPause refuses a new sandbox with on_timeout pause if its project's snapshot quota
// is exhausted. Running ones are paused regardless, since an exhausted quota must not be a way
// to keep running.
func (s *Service) checkRoomToPause(ctx context.Context, sb *store.Sandbox) error {
	if sb.OnTimeout != bothy.TimeoutPause || sb.TimeoutSeconds == 0 {
		return nil
	}
	err := s.checkSnapshotQuota(ctx, sb.ProjectID)
	if bothy.ErrorCode(err) != bothy.CodeQuota {
		return err
	}
	e := bothy.AsError(err)
	return bothy.Errorf(bothy.CodeQuota, "%s, and this sandbox would be paused at its timeout", e.Detail).
		WithHint("Delete unneeded snapshots, or use on_timeout terminate.").Because(err)
}

// forgetBudgets drops the budgets of trees without live sandboxes whose root is no longer
// stored.
func (s *Service) forgetBudgets(ctx context.Context) {
	trees := s.o.Meter.Trees()
	if len(trees) == 0 {
		return
	}
	alive, err := s.o.Store.SandboxesInState(ctx, bothy.LiveStates...)
	if err != nil {
		s.log.Warn("cannot look for unneeded budgets", "error", err)
		return
	}
	needed := map[string]bool{}
	for _, sb := range alive {
		needed[sb.BudgetRoot] = true
	}
	for _, root := range trees {
		if needed[root] {
			continue
		}
		if _, err := s.ledger.Sandbox(ctx, root); bothy.ErrorCode(err) != bothy.CodeSandboxNotFound {
			continue
		}
		if err := s.o.Meter.SetTreeBudget(ctx, root, "", 0); err != nil {
			s.log.Warn("cannot untrack a budget", "sandbox", root, "error", err)
		}
	}
}
