package lifecycle

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// snapshotFiles are the files of a snapshot, valid until release.
type snapshotFiles struct {
	base    *store.Template
	changes string
	release func()
}

// CompareSnapshots lists the files that differ; see bothy.SnapshotService.
func (s *Service) CompareSnapshots(ctx context.Context, since, id string, limit int) (*bothy.SnapshotChanges, error) {
	if s.o.TemplateMaker == nil {
		return nil, bothy.Errorf(bothy.CodeUnsupported, "this server cannot compare snapshots")
	}
	var files [2]*snapshotFiles
	for i, id := range []string{since, id} {
		f, err := s.filesOf(ctx, id)
		if err != nil {
			return nil, err
		}
		defer f.release()
		files[i] = f
	}
	select {
	case s.comparisons <- struct{}{}:
		defer func() { <-s.comparisons }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	changes, err := s.o.TemplateMaker.Compare(ctx, files[0].base, files[0].changes, files[1].base, files[1].changes, limit)
	var be *bothy.Error
	if err == nil || errors.As(err, &be) || ctx.Err() != nil {
		return changes, err
	}
	return nil, bothy.Errorf(bothy.CodeSnapshotDamaged, "the files of the snapshots %s and %s cannot be compared", since, id).
		WithHint("One of them is damaged; compare others. The cause is in the server's log.").Because(err)
}

func (s *Service) filesOf(ctx context.Context, id string) (*snapshotFiles, error) {
	n, err := s.findSnapshot(ctx, id, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, err
	}
	dir, m, release, err := s.openSnapshot(ctx, n.ID)
	if err != nil {
		return nil, err
	}
	base, err := s.o.Templates.LookupFor(ctx, n.ProjectID, m.Sandbox.TemplateDigest)
	if err != nil {
		release()
		return nil, err
	}
	return &snapshotFiles{base: base, changes: filepath.Join(dir, snapshot.FilesTar), release: release}, nil
}
