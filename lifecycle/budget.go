package lifecycle

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// budgetRetry is how long after a sandbox could not be paused the next try is.
const budgetRetry = time.Minute

// PauseOverBudget pauses what runs of a project, or, with a root, of that
// sandbox's tree. What cannot be paused runs on and is tried again later: work
// is never thrown away for money.
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
		return // it is looked at again
	}
	defer unlock()
	sb, err := s.ledger.Sandbox(ctx, id)
	if err != nil || sb.State != bothy.StateRunning || s.o.Meter.Allow(sb) == nil {
		return
	}
	// A full storage of snapshots must not be a way to keep running.
	_, err = s.pauseLocked(beyondQuota(ctx), id, bothy.PauseOptions{})
	if err == nil {
		s.log.Info("paused a sandbox whose budget is used up", "sandbox", id)
		return
	}
	s.log.Error("cannot pause a sandbox whose budget is used up", "sandbox", id, "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.instances[id]; l != nil {
		l.PauseAfter = s.clock.Now().Add(budgetRetry)
	}
}

// Tell records an event of a project.
func (s *Service) Tell(ctx context.Context, typ, project, sandbox string, data map[string]string) {
	s.ledger.EmitFor(ctx, typ, sandbox, project, data)
}

// giveBudget makes a new sandbox the root of a tree with a budget of its own, or
// part of the tree that it comes from. It is called before anything is started.
func (s *Service) giveBudget(ctx context.Context, sb *store.Sandbox, amount float64, from string) error {
	if amount != 0 && from != "" {
		return invalid("the sandbox counts against the budget of sandbox %s, which it comes from", from).
			WithHint("Leave budget out, or change that one.")
	}
	sb.BudgetRoot = from
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

// rootOf is the root of the tree that a snapshot's sandbox counts against.
func (s *Service) rootOf(ctx context.Context, n *bothy.Snapshot) string {
	sb, err := s.ledger.Sandbox(ctx, n.SandboxID)
	if err != nil || sb.ProjectID != n.ProjectID {
		return ""
	}
	return sb.BudgetRoot
}

// changeBudget gives the tree of a sandbox another budget.
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

// budgetOf is what the tree of a sandbox may spend; 0 means any amount.
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

// checkRoomToPause refuses one more sandbox that is to be paused when its time is up
// to a project whose snapshots take up all that they may: it is paused all the same
// then, since a full storage must not be a way to run on.
func (s *Service) checkRoomToPause(ctx context.Context, sb *store.Sandbox) error {
	if sb.OnTimeout != bothy.TimeoutPause || sb.TimeoutSeconds == 0 {
		return nil
	}
	err := s.checkSnapshotQuota(ctx, sb.ProjectID)
	if bothy.ErrorCode(err) != bothy.CodeQuota {
		return err
	}
	e := bothy.AsError(err)
	return bothy.Errorf(bothy.CodeQuota, "%s, and this sandbox is to be paused when its time is up", e.Detail).
		WithHint("Delete snapshots that are not needed, or use on_timeout terminate.").Because(err)
}

// forgetBudgets drops the budgets of trees of which nothing lives or can be
// looked up any more.
func (s *Service) forgetBudgets(ctx context.Context) {
	trees := s.o.Meter.Trees()
	if len(trees) == 0 {
		return
	}
	alive, err := s.o.Store.SandboxesInState(ctx, bothy.LiveStates...)
	if err != nil {
		s.log.Warn("cannot look for budgets that are no longer needed", "error", err)
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
