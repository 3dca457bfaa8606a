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
	if err := s.room(); err != nil {
		return nil, err
	}
	engine, err := s.engines.Choose(ctx, req.Engine, req.RequireAcceleration)
	if err != nil {
		return nil, err
	}
	req.Engine = engine.Info().Name
	sb, err := s.newSandbox(bothy.WithOnce(ctx, nil), req) // the key is of what is built
	if err != nil {
		return nil, err
	}
	sb.ProjectID, sb.TemplateDigest = caller.ProjectID, t.Digest
	if err := s.allow(ctx, sb); err != nil {
		return nil, err
	}
	reservation, err := s.admission.Reserve(ctx, sb.ProjectID)
	if err != nil {
		return nil, err
	}
	defer reservation.Release()
	unlock := s.ledger.Lock(sb.ID)
	defer unlock()
	if err := s.ledger.Transition(ctx, sb, bothy.StateStarting); err != nil {
		return nil, err
	}
	l, err := s.startMachine(ctx, sb, t, "", func(ctx context.Context) (bothy.Machine, error) {
		spec := s.machines.MachineSpec(sb, t)
		spec.FilesTar = files
		return s.engines.Get(sb.Engine).Start(ctx, spec)
	})
	return s.created(ctx, sb, l, err, reservation)
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
