package lifecycle

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// snapshotOptions configure a snapshot of a running sandbox.
type snapshotOptions struct {
	id, name string
	kind     bothy.SnapshotKind
	// stop leaves the machine frozen on success.
	stop bool
	// detail says why only files were saved although memory was requested.
	detail string
	// hurry skips preparing the guest, so more of its memory may be saved.
	hurry bool
	// checkpoint marks one that the server takes by itself.
	checkpoint bool
}

// guestPatience is how long the guest may take to prepare for a snapshot.
const guestPatience = 5 * time.Second

// writeSnapshot writes a snapshot of a running sandbox. The snapshot is durable on return. On failure
// the sandbox keeps running. The caller holds its lock.
func (s *Service) writeSnapshot(ctx context.Context, l *instance.Instance, sb *store.Sandbox, o snapshotOptions) (*bothy.Snapshot, error) {
	if o.checkpoint || o.stop {
		ctx = s.replacing(ctx, sb)
	}
	if err := s.checkSnapshotQuota(ctx, sb.ProjectID); err != nil {
		return nil, err
	}
	if o.kind == bothy.SnapshotMemory {
		// Do not save memory that this server could not restore.
		if o.detail = s.foreignBuild(sb.Engine, l.Machine.Build()); o.detail != "" {
			o.kind = bothy.SnapshotFiles
		}
	}
	draft, err := s.o.Blobs.Create(ctx, o.id)
	if err != nil {
		return nil, snapshotError(err)
	}
	defer draft.Discard()
	if err := s.capture(ctx, l, draft.Dir(), o.kind, true, o.stop, o.hurry); err != nil {
		return nil, snapshotError(err)
	}
	n, err := s.seal(ctx, draft, sb, l.Machine.Build(), o)
	if err != nil && o.stop {
		err = errors.Join(err, s.thaw(ctx, l))
	}
	if err != nil {
		return nil, snapshotError(err)
	}
	return n, nil
}

// capture writes a machine's memory, files, or both into dir.
func (s *Service) capture(ctx context.Context, l *instance.Instance, dir string, kind bothy.SnapshotKind, files, stop, hurry bool) error {
	var o bothy.SnapshotOptions
	o.Stop, o.Compact = stop, stop && !hurry
	if files {
		o.FilesTar = filepath.Join(dir, snapshot.FilesTar)
	}
	if kind == bothy.SnapshotMemory {
		o.MemoryDir = filepath.Join(dir, snapshot.MemoryDir)
		if err := os.Mkdir(o.MemoryDir, 0o711); err != nil {
			return err
		}
	}
	release, err := s.machines.Wake(l)
	if err != nil {
		return err
	}
	defer release()
	if err := failpoint.Hit("lifecycle.freeze"); err != nil {
		return err
	}
	if stop && !hurry {
		// Preparing makes the snapshot smaller, but costs processor time. A guest that
		// fails to prepare is frozen as it is.
		gctx, cancel := context.WithTimeout(ctx, s.engines.Patience(l.Engine, guestPatience))
		err := l.Guest.Freeze(gctx)
		cancel()
		if err != nil {
			s.log.Warn("the guest cannot prepare for a snapshot; taking it anyway", "sandbox", l.ID, "error", err)
		}
	}
	// In a copy, the other end of these connections would not exist.
	l.KeptConns.CloseIdle()
	begun := time.Now()
	o.OnPaused = func() { begun = time.Now() }
	done := l.MarkFrozen()
	err = l.Machine.Snapshot(ctx, o)
	done()
	s.log.Info("sandbox was frozen for a snapshot", "sandbox", l.ID, "ms", time.Since(begun).Milliseconds(), "error", err)
	switch {
	case !stop:
		return err
	case err != nil:
		return errors.Join(err, s.thawGuest(ctx, l)) // the machine runs again
	}
	if err = failpoint.Hit("lifecycle.frozen"); err != nil {
		err = errors.Join(err, s.thaw(ctx, l))
	}
	return err
}

// thaw resumes a frozen machine.
func (s *Service) thaw(ctx context.Context, l *instance.Instance) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.engines.Patience(l.Engine, guestPatience))
	defer cancel()
	if err := l.Machine.Thaw(ctx); err != nil {
		return err
	}
	return s.thawGuest(ctx, l)
}

// thawGuest tells the guest that it runs again. Its time counts from now, whatever the snapshot took.
func (s *Service) thawGuest(ctx context.Context, l *instance.Instance) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.engines.Patience(l.Engine, guestPatience))
	defer cancel()
	return l.Guest.Thaw(ctx)
}

// seal turns a draft into a snapshot, on disk and in the store.
func (s *Service) seal(ctx context.Context, draft blob.Draft, sb *store.Sandbox, build string, o snapshotOptions) (*bothy.Snapshot, error) {
	m := &snapshot.Manifest{
		ID: o.id, ProjectID: sb.ProjectID, SandboxID: sb.ID, ParentID: sb.HeadSnapshotID, Name: o.name, Kind: o.kind,
		CreatedAt: s.clock.Now().UTC(), Engine: sb.Engine, EngineBuild: build, Kernel: sb.Kernel,
		Detail: o.detail, GuestKey: sb.GuestKey, Processor: s.processorOf(sb), Checkpoint: o.checkpoint,
		Sandbox: snapshot.Origin{
			Name: sb.Name, Template: sb.Template, TemplateDigest: sb.TemplateDigest,
			CPU: sb.CPU, MemoryMB: sb.MemoryMB, DiskMB: sb.DiskMB, Network: sb.Network,
			TimeoutSeconds: sb.TimeoutSeconds, OnTimeout: sb.OnTimeout, IdleSeconds: sb.IdleSeconds, EndWhenIdle: sb.EndWhenIdle,
			AutoResume: sb.AutoResume, OnHostLoss: sb.OnHostLoss, CheckpointSeconds: sb.CheckpointSeconds, Accelerated: sb.RequireAcceleration,
			Env: sb.Env, Metadata: sb.Metadata, HostLabels: sb.HostLabels,
		},
	}
	if err := s.sealDraft(ctx, draft, m); err != nil {
		return nil, err
	}
	n := record(m)
	if err := s.addSnapshot(ctx, n); err != nil {
		return nil, errors.Join(err, s.o.Blobs.Remove(ctx, o.id))
	}
	if err := failpoint.Hit("lifecycle.sealed"); err != nil {
		return nil, errors.Join(err, s.dropSnapshot(ctx, o.id))
	}
	s.keep(o.id)
	if !o.checkpoint {
		s.ledger.Emit(ctx, bothy.EventSnapshotCreated, sb, map[string]string{"snapshot_id": o.id, "kind": string(o.kind)})
		s.pruneSoon(sb.ProjectID, sb.ID)
	}
	return n, nil
}

// sealDraft hashes the parts while they are flushed to disk, and commits the draft if the quota
// allows it.
func (s *Service) sealDraft(ctx context.Context, draft blob.Draft, m *snapshot.Manifest) error {
	flushed := make(chan error, 1)
	go func() { flushed <- draft.Flush(ctx) }()
	err := snapshot.Seal(ctx, draft.Dir(), m)
	if err = errors.Join(err, <-flushed); err != nil {
		return err
	}
	if err := s.fits(ctx, m.ProjectID, m.Size()); err != nil {
		return err
	}
	return draft.Commit(ctx)
}

func record(m *snapshot.Manifest) *bothy.Snapshot {
	n := &bothy.Snapshot{
		ID: m.ID, SandboxID: m.SandboxID, ParentID: m.ParentID, Name: m.Name, Template: m.Sandbox.Template,
		Kind: m.Kind, SizeBytes: m.Size(), CreatedAt: m.CreatedAt, Detail: m.Detail, Checkpoint: m.Checkpoint, ProjectID: m.ProjectID, Durable: bothy.DurableHost,
	}
	if m.Kind == bothy.SnapshotMemory {
		n.Needs = needsOf(m)
	}
	return n
}

// snapshotError translates errors of the disk for the caller.
func snapshotError(err error) error {
	var be *bothy.Error
	switch {
	case err == nil || errors.As(err, &be) || errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return bothy.Errorf(bothy.CodeDiskFull, "the host's disk is full, so no snapshot could be written; the sandbox keeps running").
			WithHint("Delete unneeded snapshots (bothy snapshots), or ask the operator for disk space.").Because(err)
	case errors.Is(err, fs.ErrNotExist):
		return bothy.Errorf(bothy.CodeEngine, "files of the sandbox's machine are missing on the host, so no snapshot could be written; the sandbox keeps running").
			WithHint("Copy out what you need and create another. The operator finds the missing file in the server's log: nothing below machines in the server's state may be deleted.").Because(err)
	}
	return bothy.Errorf(bothy.CodeEngine, "the snapshot could not be written; the sandbox keeps running").
		WithHint("Try again. The cause is in the server's log.").Because(err)
}
