package lifecycle

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Restart starts a failed sandbox again, under the same id and with the same settings, from
// what it was created from. See bothy.SandboxService.
func (s *Service) Restart(ctx context.Context, id string) (*bothy.Sandbox, error) {
	sb, unlock, err := s.ledger.FindLocked(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch {
	case sb.State == bothy.StateStopped:
		return nil, bothy.Errorf(bothy.CodeConflict, "sandbox %s has ended normally (%s); only failed sandboxes can be restarted", id, sb.Ended.Reason).
			WithHint("Create another: bothy create.")
	case sb.State == bothy.StatePaused:
		return nil, bothy.Errorf(bothy.CodeConflict, "sandbox %s is paused; restarting it would lose its saved state", id).
			WithHint("Resume it: bothy resume %s.", id)
	case sb.State != bothy.StateFailed:
		return nil, bothy.Errorf(bothy.CodeConflict, "sandbox %s is %s; only failed sandboxes can be restarted", id, sb.State).
			WithHint("Use it as it is, or terminate it and create another.")
	}
	if err := s.restartLocked(ctx, sb); err != nil {
		return nil, err
	}
	return sb.Public(), nil
}

func (s *Service) restartLocked(ctx context.Context, sb *store.Sandbox) error {
	if s.o.Cluster.Shared() {
		if err := s.checkHostLabels(sb.HostLabels); err != nil {
			return err
		}
	}
	if _, err := s.engines.Need(ctx, sb.Engine); err != nil {
		return err
	}
	reason := sb.Ended.Reason
	sb.Ended, sb.Resumed, sb.HostLoss, sb.StartedAt, sb.CheckpointAt = nil, nil, nil, nil, nil
	sb.SnapshotID, sb.EarlierSnapshotID, sb.HeadSnapshotID, sb.OwnSnapshotID, sb.Checkpoints = "", "", "", "", nil
	sb.Forking = ""
	if err := s.check(&sb.Sandbox); err != nil {
		return err
	}
	c := &launch{
		sb: sb, again: true,
		event: bothy.EventSandboxRestarted, data: map[string]string{"after": string(reason)},
	}
	if sb.BudgetRoot == sb.ID && sb.Budget > 0 {
		// The budget may have been dropped since the sandbox ended.
		c.budget = sb.Budget
	}
	c.find = func() error { return s.findAgain(ctx, c) }
	defer c.held.Run()
	return s.launch(ctx, c)
}

// findAgain finds what a sandbox was created from: a snapshot if that still exists, else its
// template.
func (s *Service) findAgain(ctx context.Context, c *launch) error {
	sb := c.sb
	if id := sb.ParentSnapshotID; id != "" {
		n, err := s.o.Store.Snapshot(ctx, id)
		if err == nil && n.ProjectID == sb.ProjectID {
			sb.HeadSnapshotID, c.data["snapshot_id"] = id, id
			return s.openFor(ctx, c, id)
		}
		if err != nil && bothy.ErrorCode(err) != bothy.CodeSnapshotNotFound {
			return err
		}
	}
	now, lookup := s.o.Templates.LookupFor(ctx, sb.ProjectID, sb.Template)
	if lookup == nil && now.Memory != nil && now.Memory.BaseDigest == sb.TemplateDigest && now.Memory.Engine == sb.Engine {
		c.data["snapshot_id"] = now.Memory.SnapshotID
		return s.openFor(ctx, c, now.Memory.SnapshotID)
	}
	var err error
	if c.t, err = s.templateOf(ctx, sb.ProjectID, sb.Template, sb.TemplateDigest); err == nil {
		return nil
	}
	// The image is gone: use the template that now has its name.
	if c.t = now; lookup == nil {
		sb.TemplateDigest = now.Digest
	}
	return lookup
}
