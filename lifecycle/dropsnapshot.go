package lifecycle

import (
	"context"
	"errors"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/store"
)

// dropPauseSnapshot deletes an unnamed snapshot that a pause made, once the sandbox has a later
// one.
func (s *Service) dropPauseSnapshot(ctx context.Context, sb *store.Sandbox, id string) {
	if id == "" || id == sb.OwnSnapshotID {
		return
	}
	n, err := s.o.Store.Snapshot(ctx, id)
	if err != nil || n.Name != "" {
		return
	}
	if err := s.dropSnapshot(ctx, id); err != nil {
		s.log.Warn("cannot delete an old snapshot", "snapshot", id, "error", err)
	}
}

// dropSnapshot deletes a snapshot's files and then its record. If the server is killed in
// between, the next start notices that the files are gone.
func (s *Service) dropSnapshot(ctx context.Context, id string) error {
	s.warm.Forget(id)
	n, unlisted := s.o.Store.Snapshot(ctx, id)
	removed := s.o.Blobs.Remove(ctx, id)
	if removed != nil {
		if _, release, err := s.o.Blobs.Open(ctx, id); err == nil {
			release()
			return removed // the snapshot is unchanged
		}
	}
	if err := failpoint.Hit("lifecycle.removed"); err != nil {
		return err
	}
	err := s.o.Store.DeleteSnapshot(ctx, id)
	if err == nil && unlisted == nil {
		s.o.Meter.SnapshotDeleted(ctx, n)
	}
	return errors.Join(removed, err)
}

// DeleteSnapshot deletes a snapshot that no paused sandbox needs. Snapshots are self-contained:
// those made from this one, or from its children, stay valid.
func (s *Service) DeleteSnapshot(ctx context.Context, id string) error {
	n, err := s.findSnapshot(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return err
	}
	if err := s.heldByTemplate(id); err != nil {
		return err
	}
	// The sandbox's lock prevents a concurrent pause or resume.
	unlock, err := s.ledger.LockFor(ctx, n.SandboxID)
	if err != nil {
		return err
	}
	defer unlock()
	sb, err := s.ledger.Sandbox(ctx, n.SandboxID)
	if err == nil && sb.SnapshotID == id && !sb.State.Ended() && sb.State != bothy.StateRunning {
		return bothy.Errorf(bothy.CodeSnapshotInUse, "sandbox %s is paused in snapshot %s", sb.ID, id).
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

// heldByTemplate returns an error if a template starts from the snapshot.
func (s *Service) heldByTemplate(id string) error {
	if s.o.TemplateMaker == nil {
		return nil
	}
	t, err := s.o.TemplateMaker.HoldsSnapshot(id)
	if err != nil || t == nil {
		return err
	}
	return bothy.Errorf(bothy.CodeSnapshotInUse, "the template %s starts from snapshot %s", t.Ref(), id).
		WithHint("Delete the template: bothy template rm %s.", t.Ref())
}
