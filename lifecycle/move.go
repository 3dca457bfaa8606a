package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/snapshot"
)

// ExportSnapshot writes a snapshot as one file; see bothy.SnapshotMover.
func (s *Service) ExportSnapshot(ctx context.Context, id, passphrase string, w io.Writer) error {
	// The archive contains all of the sandbox's memory and files, so reading is not enough.
	n, err := s.findSnapshot(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return err
	}
	ctx, done, err := s.transfers.begin(ctx, s.clock, n.ProjectID)
	if err != nil {
		return err
	}
	defer done()
	dir, m, release, err := s.openSnapshot(ctx, id)
	if err != nil {
		if _, gone := s.findSnapshot(ctx, id, bothy.ScopeSandboxesWrite); gone != nil {
			return gone // deleted meanwhile
		}
		return err
	}
	// From here on it can be deleted and the export still completes.
	defer release()
	return snapshot.Export(ctx, w, dir, m, passphrase, s.o.ArchiveKey)
}

// ArchiveKey returns the public key that signs what this server exports.
func (s *Service) ArchiveKey(ctx context.Context) (*bothy.ArchiveKey, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeSandboxesRead); err != nil {
		return nil, err
	}
	key := s.o.ArchiveKey.Public()
	if key == "" {
		return nil, bothy.Errorf(bothy.CodeUnsupported, "this server does not sign archives").WithHint("Start it with a state folder.")
	}
	return &bothy.ArchiveKey{Key: string(key)}, nil
}

// ImportSnapshot reads an archive of ExportSnapshot. The archive is not trusted.
func (s *Service) ImportSnapshot(ctx context.Context, name, passphrase string, r io.Reader) (*bothy.Snapshot, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := s.checkSnapshotQuota(ctx, caller.ProjectID); err != nil {
		return nil, err
	}
	ctx, done, err := s.transfers.begin(ctx, s.clock, caller.ProjectID)
	if err != nil {
		return nil, err
	}
	defer done()
	id := instance.NewID("snp")
	draft, err := s.o.Blobs.Create(ctx, id)
	if err != nil {
		return nil, importError(err)
	}
	defer draft.Discard()
	room := &importRoom{s: s, ctx: ctx, project: caller.ProjectID, dir: draft.Dir()}
	defer room.release()
	m, err := snapshot.Import(ctx, r, draft.Dir(), snapshot.ImportOptions{
		Passphrase: passphrase, Trusted: s.trusted,
		Accept: func(m *snapshot.Manifest, unpacked int64) (snapshot.Room, error) {
			m.ID, m.SandboxID, m.ParentID, m.ProjectID, m.Checkpoint = id, instance.NewID("sbx"), "", caller.ProjectID, false
			m.Name, m.CreatedAt, m.Sandbox.HostLabels = cmp.Or(name, m.Name, "imported"), s.clock.Now().UTC(), nil
			if err := s.checkImported(ctx, m, unpacked); err != nil {
				return nil, err
			}
			return room, room.open(m)
		},
	})
	if err != nil {
		return nil, importError(err)
	}
	if err := room.checkSize(m.Size()); err != nil {
		return nil, err
	}
	// Keep the complete snapshot even if the caller leaves, and the engine build that it needs.
	ctx = context.WithoutCancel(ctx)
	if e := s.engines.Get(m.Engine); e != nil && m.Kind == bothy.SnapshotMemory {
		letGo, _ := s.holdBuild(e, m.EngineBuild)
		defer letGo()
	}
	if err := draft.Commit(ctx); err != nil {
		return nil, importError(err)
	}
	n := record(m)
	if err := s.addSnapshot(ctx, n); err != nil {
		return nil, errors.Join(err, s.o.Blobs.Remove(ctx, id))
	}
	s.ledger.EmitFor(ctx, bothy.EventSnapshotCreated, m.SandboxID, caller.ProjectID,
		map[string]string{"snapshot_id": id, "imported": "true", "kind": string(m.Kind)})
	s.keep(id)
	return n, nil
}

func importError(err error) error {
	e := bothy.AsError(snapshotError(err))
	switch e.Code {
	case bothy.CodeDiskFull:
		return diskFullForImport().Because(err)
	case bothy.CodeEngine:
		return err
	}
	return e
}
