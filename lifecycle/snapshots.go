package lifecycle

import (
	"context"
	"errors"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
)

var (
	_ bothy.SnapshotService = (*Service)(nil)
	_ bothy.SnapshotMover   = (*Service)(nil)
)

// CreateSnapshot takes a live snapshot.
func (s *Service) CreateSnapshot(ctx context.Context, id string, req bothy.SnapshotCreate) (*bothy.Snapshot, error) {
	if err := errors.Join(checkName(req.Name), s.checkWait(req.Wait)); err != nil {
		return nil, err
	}
	n, err := s.createSnapshot(ctx, id, req)
	if err != nil {
		return nil, err
	}
	return s.waitStored(ctx, n, req.Wait), nil
}

func (s *Service) createSnapshot(ctx context.Context, id string, req bothy.SnapshotCreate) (*bothy.Snapshot, error) {
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
	n, err := s.writeSnapshot(ctx, l, sb, snapshotOptions{id: instance.NewID("snp"), name: req.Name, kind: kind})
	if err != nil {
		return nil, err
	}
	sb.HeadSnapshotID = n.ID
	return n, s.ledger.Put(ctx, sb)
}

// Snapshot returns one of the caller's snapshots.
func (s *Service) Snapshot(ctx context.Context, id string) (*bothy.Snapshot, error) {
	return s.findSnapshot(ctx, id, bothy.ScopeSandboxesRead)
}

// Snapshots lists the caller's snapshots.
func (s *Service) Snapshots(ctx context.Context, f bothy.SnapshotFilter) (bothy.Page[*bothy.Snapshot], error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return bothy.Page[*bothy.Snapshot]{}, err
	}
	return s.o.Store.Snapshots(ctx, caller.ProjectID, f)
}
