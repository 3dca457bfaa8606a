package lifecycle

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
)

var (
	_ bothy.SnapshotService = (*Service)(nil)
	_ bothy.SnapshotMover   = (*Service)(nil)
)

// CreateSnapshot takes a live snapshot.
func (s *Service) CreateSnapshot(ctx context.Context, id string, req bothy.SnapshotCreate) (*bothy.Snapshot, error) {
	if err := checkName(req.Name); err != nil {
		return nil, err
	}
	if _, err := s.ledger.Find(ctx, id, bothy.ScopeSandboxesWrite); err != nil {
		return nil, err
	}
	unlock, err := s.ledger.LockFor(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	l, sb, err := s.ensureRunning(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	if sb.State != bothy.StateRunning {
		return nil, s.wrongState(sb)
	}
	ctx = context.WithoutCancel(ctx)
	kind := bothy.SnapshotMemory
	if req.FilesOnly {
		kind = bothy.SnapshotFiles
	}
	n, err := s.freeze(ctx, l, sb, freezeOptions{id: instance.NewID("snp"), name: req.Name, kind: kind})
	if err != nil {
		return nil, err
	}
	sb.HeadSnapshotID = n.ID
	return n, s.ledger.Put(ctx, sb)
}

// Snapshot finds one of the caller's snapshots.
func (s *Service) Snapshot(ctx context.Context, id string) (*bothy.Snapshot, error) {
	return s.findSnapshot(ctx, id, bothy.ScopeSandboxesRead)
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
		return nil, bothy.Errorf(bothy.CodeSnapshotNotFound, "there is no snapshot %q", id).WithHint("`bothy snapshots` lists them.")
	}
	return n, nil
}

// Snapshots lists the caller's snapshots.
func (s *Service) Snapshots(ctx context.Context, f bothy.SnapshotFilter) (bothy.Page[*bothy.Snapshot], error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return bothy.Page[*bothy.Snapshot]{}, err
	}
	return s.o.Store.Snapshots(ctx, caller.ProjectID, f)
}

// DeleteSnapshot frees a snapshot that no paused sandbox needs. Snapshots are
// whole: what was made from this one, or from its children, stays.
func (s *Service) DeleteSnapshot(ctx context.Context, id string) error {
	n, err := s.findSnapshot(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return err
	}
	if err := s.heldByTemplate(id); err != nil {
		return err
	}
	// The sandbox's lock keeps it from falling asleep or waking meanwhile.
	unlock, err := s.ledger.LockFor(ctx, n.SandboxID)
	if err != nil {
		return err
	}
	defer unlock()
	sb, err := s.ledger.Sandbox(ctx, n.SandboxID)
	if err == nil && sb.SnapshotID == id && !sb.State.Ended() && sb.State != bothy.StateRunning {
		return bothy.Errorf(bothy.CodeSnapshotInUse, "sandbox %s sleeps in snapshot %s", sb.ID, id).
			WithHint("Resume or terminate the sandbox first.")
	}
	if err != nil && bothy.ErrorCode(err) != bothy.CodeSandboxNotFound {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if err := s.dropSnapshot(ctx, id); err != nil {
		return err
	}
	s.ledger.EmitFor(ctx, bothy.EventSnapshotDeleted, n.SandboxID, n.ProjectID, map[string]string{"snapshot_id": id})
	return nil
}
