package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/snapshot"
)

// ExportSnapshot writes a snapshot as one file; see bothy.SnapshotMover.
func (s *Service) ExportSnapshot(ctx context.Context, id, passphrase string, w io.Writer) error {
	// The archive holds all of the sandbox's memory and files.
	if _, err := s.findSnapshot(ctx, id, bothy.ScopeSandboxesWrite); err != nil {
		return err
	}
	dir, m, release, err := s.openSnapshot(ctx, id)
	if err != nil {
		if _, gone := s.findSnapshot(ctx, id, bothy.ScopeSandboxesWrite); gone != nil {
			return gone // deleted meanwhile
		}
		return err
	}
	// From here on it can be deleted, and is still exported whole.
	defer release()
	return snapshot.Export(ctx, w, dir, m, passphrase)
}

// ImportSnapshot reads what ExportSnapshot wrote.
func (s *Service) ImportSnapshot(ctx context.Context, name, passphrase string, r io.Reader) (*bothy.Snapshot, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := s.checkSnapshotQuota(ctx, caller.ProjectID, 0); err != nil {
		return nil, err
	}
	id := newID("snp")
	draft, err := s.o.Blobs.Create(ctx, id)
	if err != nil {
		return nil, snapshotError(err)
	}
	defer draft.Discard()
	m, err := snapshot.Import(ctx, r, draft.Dir(), passphrase)
	if err != nil {
		return nil, importError(err)
	}
	m.ID, m.ParentID, m.ProjectID = id, "", caller.ProjectID
	m.Name = cmp.Or(name, m.Name, "imported")
	if err := snapshot.Rewrite(draft.Dir(), m); err != nil {
		return nil, importError(err)
	}
	if err := s.checkSnapshotQuota(ctx, caller.ProjectID, m.Size()); err != nil {
		return nil, err
	}
	// What has arrived is kept, also when the caller leaves now.
	ctx = context.WithoutCancel(ctx)
	if err := draft.Commit(ctx); err != nil {
		return nil, importError(err)
	}
	n := record(m)
	if err := s.o.Store.PutSnapshot(ctx, n); err != nil {
		return nil, errors.Join(err, s.o.Blobs.Remove(ctx, id))
	}
	s.emitFor(ctx, bothy.EventSnapshotCreated, m.SandboxID, caller.ProjectID, map[string]string{"snapshot_id": id, "imported": "true"})
	return n, nil
}

func importError(err error) error {
	e := bothy.AsError(snapshotError(err))
	switch e.Code {
	case bothy.CodeDiskFull:
		return bothy.Errorf(bothy.CodeDiskFull, "the host's disk is full, so the archive could not be unpacked").
			WithHint("Delete snapshots that are not needed, or ask the operator for space.").Because(err)
	case bothy.CodeEngine:
		return err
	}
	return e
}

func newestFirst(list []*bothy.Snapshot) []*bothy.Snapshot {
	return slices.SortedFunc(slices.Values(list), func(a, b *bothy.Snapshot) int { return b.CreatedAt.Compare(a.CreatedAt) })
}
