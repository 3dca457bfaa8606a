package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/lifecycle/engines"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// freezeOptions configure a snapshot of a running sandbox.
type freezeOptions struct {
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

// freeze writes a snapshot of a running sandbox. The snapshot is durable on return. On failure
// the sandbox keeps running. The caller holds its lock.
func (s *Service) freeze(ctx context.Context, l *instance.Instance, sb *store.Sandbox, o freezeOptions) (*bothy.Snapshot, error) {
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
func (s *Service) seal(ctx context.Context, draft blob.Draft, sb *store.Sandbox, build string, o freezeOptions) (*bothy.Snapshot, error) {
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

// openSnapshot opens the caller's snapshot and its manifest.
func (s *Service) openSnapshot(ctx context.Context, id string) (dir string, m *snapshot.Manifest, release func(), err error) {
	dir, release, err = s.o.Blobs.Open(ctx, id)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, nil, bothy.Errorf(bothy.CodeSnapshotDamaged, "the files of snapshot %s are missing", id).
			WithHint("Use another snapshot of the same sandbox.").Because(err)
	}
	if err != nil {
		return "", nil, nil, err
	}
	if m, err = snapshot.Read(dir); err != nil {
		release()
		return "", nil, nil, err
	}
	return dir, m, release, nil
}

// frozen is a snapshot that is about to be restored, possibly more than once. Its files are
// verified in the background.
type frozen struct {
	dir string
	m   *snapshot.Manifest
	// filesOnly ignores its memory.
	filesOnly bool
	// verified waits for the result of the verification.
	verified func() error
	// ahead is a machine that is being restored in advance, if any.
	ahead *ahead
}

// ahead is a machine that is being restored while its sandbox still has another one.
type ahead struct {
	cancel  context.CancelFunc
	done    chan struct{}
	machine bothy.Machine
	how     *bothy.Resumed
	err     error
}

// restoreAhead starts restoring a machine for sb in advance, if the host has enough memory for
// two. The next restore uses it.
func (s *Service) restoreAhead(ctx context.Context, sb *store.Sandbox, from *frozen) {
	t, err := s.templateOf(ctx, sb.ProjectID, from.m.Sandbox.Template, from.m.Sandbox.TemplateDigest)
	if err != nil || s.admission.FreeMemoryMB() < sb.MemoryMB+s.o.Pool.MinFreeMemoryMB {
		return
	}
	a := &ahead{done: make(chan struct{})}
	ctx, a.cancel = context.WithTimeout(ctx, s.engines.Patience(sb.Engine, instance.StartTimeout))
	from.ahead = a
	go func() {
		defer close(a.done)
		a.machine, a.how, a.err = s.restoreMachine(ctx, sb, t, from, true)
	}()
}

// discardAhead destroys an unused machine that was restored in advance.
func (s *Service) discardAhead(from *frozen) {
	a := from.ahead
	if a == nil {
		return
	}
	from.ahead = nil
	a.cancel()
	<-a.done
	if a.machine != nil {
		s.machines.Destroy(a.machine)
	}
}

// checking starts to verify a snapshot. Its folder must stay open until verified has returned.
func checking(ctx context.Context, dir string, m *snapshot.Manifest) *frozen {
	found := make(chan error, 1)
	go func() { found <- snapshot.Verify(ctx, dir, m, false) }()
	return &frozen{dir: dir, m: m, verified: sync.OnceValue(func() error { return <-found })}
}

// restore starts a machine from a snapshot: with its memory if the engine build that wrote it
// is available, and otherwise only with its files. It reports which.
func (s *Service) restore(ctx context.Context, sb *store.Sandbox, t *store.Template, from *frozen) (bothy.Machine, *bothy.Resumed, error) {
	if a := from.ahead; a != nil {
		from.ahead = nil
		defer a.cancel()
		if <-a.done; a.err == nil {
			return a.machine, a.how, nil
		}
		s.log.Debug("cannot restore a machine in advance", "sandbox", sb.ID, "error", a.err)
	}
	return s.restoreMachine(ctx, sb, t, from, false)
}

func (s *Service) restoreMachine(ctx context.Context, sb *store.Sandbox, t *store.Template, from *frozen, concurrent bool) (bothy.Machine, *bothy.Resumed, error) {
	m := from.m
	engine, err := s.engines.Need(ctx, sb.Engine)
	if err != nil {
		return nil, nil, err
	}
	if err := engines.CheckAcceleration(engine.Info(), sb.RequireAcceleration); err != nil {
		return nil, nil, err
	}
	how := &bothy.Resumed{SnapshotID: m.ID, Kind: bothy.SnapshotMemory, At: s.clock.Now().UTC()}
	spec := s.machines.MachineSpec(sb, t)
	spec.AllowConcurrent = concurrent
	switch {
	case !m.Has(snapshot.MemoryDir):
		how.Kind, how.Detail = bothy.SnapshotFiles, cmp.Or(m.Detail, "the snapshot contains only files: processes were not saved")
	case from.filesOnly:
		how.Kind, how.Detail = bothy.SnapshotFiles, "the memory was ignored, as requested: the files are back, the processes are gone"
	case m.Engine != sb.Engine:
		how.Kind = bothy.SnapshotFiles
		how.Detail = fmt.Sprintf("the memory was written by the engine %s but this sandbox runs on %s: the files are back, the processes are gone", m.Engine, sb.Engine)
	default:
		release, why := s.holdBuild(engine, m.EngineBuild)
		defer release()
		if why != "" {
			how.Kind = bothy.SnapshotFiles
			how.Detail = fmt.Sprintf("the memory was written by engine build %s, %s: the files are back, the processes are gone", m.EngineBuild, why)
			break
		}
		if has := engine.Info().Host; !has.Wakes(m.Processor) {
			if err := s.o.Cluster.NoHost(ctx, m.ID, *needsOf(m)); err != nil {
				return nil, nil, err
			}
			how.Kind = bothy.SnapshotFiles
			how.Detail = fmt.Sprintf("the memory was written on another processor, %s, and this host has %s: the files are back, the processes are gone", m.Processor, missing(has, m.Processor))
		}
	}
	var machine bothy.Machine
	if how.Kind == bothy.SnapshotMemory {
		// Restoring damaged memory may never end, so cancel it when verification fails.
		rctx, giveUp := context.WithCancel(ctx)
		go func() {
			if from.verified() != nil {
				giveUp()
			}
		}()
		spec.Build = m.EngineBuild
		machine, err = engine.Restore(rctx, spec, filepath.Join(from.dir, snapshot.MemoryDir))
		giveUp()
		if errors.Is(err, bothy.ErrMemoryUnusable) && m.Has(snapshot.FilesTar) {
			s.log.Warn("cannot restore memory on this host", "sandbox", sb.ID, "snapshot", m.ID, "error", err)
			how.Kind = bothy.SnapshotFiles
			how.Detail = bothy.AsError(err).Detail + ": the files are back, the processes are gone"
			spec.Build = ""
		}
	}
	if how.Kind == bothy.SnapshotFiles {
		spec.FilesTar = filepath.Join(from.dir, snapshot.FilesTar)
		machine, err = engine.Start(ctx, spec)
	}
	if bad := from.verified(); bad != nil {
		if machine != nil {
			s.machines.Destroy(machine)
		}
		return nil, nil, bad
	}
	return machine, how, err
}

// templateOf finds the image that memory was written with, under its former name if that still
// refers to it: older engine builds expect it at the same path.
func (s *Service) templateOf(ctx context.Context, project, name, digest string) (*store.Template, error) {
	if ref, err := bothy.ParseTemplateRef(name); err == nil && ref.Name != "" {
		if t, err := s.o.Templates.LookupFor(ctx, project, ref.Name+"@"+digest); err == nil {
			return t, nil
		}
	}
	return s.o.Templates.LookupFor(ctx, project, digest)
}

// restoreTemplate starts a machine without an owner from a template's memory.
func (s *Service) restoreTemplate(ctx context.Context, sb *store.Sandbox, t *store.Template, snapshotID string) (bothy.Machine, string, error) {
	dir, m, done, err := s.openSnapshot(ctx, snapshotID)
	if err != nil {
		return nil, "", err
	}
	defer done()
	machine, how, err := s.restore(ctx, sb, t, checking(ctx, dir, m))
	if err == nil && how.Kind != bothy.SnapshotMemory {
		s.machines.Destroy(machine)
		err = bothy.Errorf(bothy.CodeEngine, "%s", how.Detail)
	}
	return machine, m.GuestKey, err
}
