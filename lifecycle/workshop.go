package lifecycle

import (
	"context"
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// StartFrom creates a sandbox from an image that need not be in the template library, with
// changes to its files (see bothy.MachineSpec.FilesTar) if any. Template builds use it. The
// sandbox counts like any other of the caller's, and none is kept ready for it.
func (s *Service) StartFrom(ctx context.Context, req bothy.SandboxCreate, t *store.Template, files string) (*bothy.Sandbox, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	sb, err := s.newSandbox(bothy.WithOnce(ctx, nil), caller.ProjectID, req) // the key is of what is built
	if err != nil {
		return nil, err
	}
	sb.TemplateDigest = t.Digest
	if err := s.launch(ctx, &launch{sb: sb, t: t, boot: true, files: files}); err != nil {
		return nil, err
	}
	return sb.Public(), nil
}

// SaveFiles writes a running sandbox's changes to its root file system to a file of the host,
// as a tar with overlay whiteouts. The sandbox keeps running.
func (s *Service) SaveFiles(ctx context.Context, id, path string) error {
	if _, err := s.ledger.Find(ctx, id, bothy.ScopeSandboxesWrite); err != nil {
		return err
	}
	unlock, err := s.ledger.LockFor(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	l, _, err := s.ensureRunning(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return err
	}
	release, err := s.machines.Wake(l)
	if err != nil {
		return err
	}
	defer release()
	defer l.MarkFrozen()()
	return l.Machine.Snapshot(ctx, bothy.SnapshotOptions{FilesTar: filepath.Clean(path)})
}
