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

// freezeOptions say how a running sandbox becomes a snapshot.
type freezeOptions struct {
	id, name string
	kind     bothy.SnapshotKind
	// stop leaves the machine standing still when all went well.
	stop bool
	// detail is why there are files only, where memory was asked for.
	detail string
	// hurry takes the guest as it is, and so perhaps more of its memory.
	hurry bool
	// checkpoint is for one that the server takes by itself.
	checkpoint bool
}

// guestPatience is how long the guest may take to prepare for a snapshot.
const guestPatience = 5 * time.Second

// freeze writes a running sandbox into a snapshot that is durable when it
// returns. When it fails the sandbox runs on. The caller holds its lock.
func (s *Service) freeze(ctx context.Context, l *instance.Instance, sb *store.Sandbox, o freezeOptions) (*bothy.Snapshot, error) {
	if o.checkpoint || o.stop {
		ctx = s.replacing(ctx, sb)
	}
	if err := s.checkSnapshotQuota(ctx, sb.ProjectID); err != nil {
		return nil, err
	}
	if o.kind == bothy.SnapshotMemory {
		// What this server could not wake is not written down either.
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

// capture writes a machine's memory or files, or both, into dir.
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
	gctx, cancel := context.WithTimeout(ctx, s.engines.Patience(l.Engine, guestPatience))
	defer cancel()
	if stop && !hurry {
		// It makes the snapshot smaller, but takes processor time from what runs
		// on. A guest that cannot prepare is frozen as it is.
		if err := l.Guest.Freeze(gctx); err != nil {
			s.log.Warn("the guest could not prepare for a snapshot", "sandbox", l.ID, "error", err)
		}
	}
	// In a copy their other end would not be there.
	l.KeptConns.CloseIdle()
	begun := time.Now()
	o.OnPaused = func() { begun = time.Now() }
	done := l.StandStill()
	err = l.Machine.Snapshot(ctx, o)
	done()
	s.log.Info("sandbox stood still for a snapshot", "sandbox", l.ID, "ms", time.Since(begun).Milliseconds(), "error", err)
	switch {
	case !stop:
		return err
	case err != nil:
		return errors.Join(err, l.Guest.Thaw(gctx))
	}
	if err = failpoint.Hit("lifecycle.frozen"); err != nil {
		err = errors.Join(err, s.thaw(ctx, l))
	}
	return err
}

// thaw resumes a machine that stands still.
func (s *Service) thaw(ctx context.Context, l *instance.Instance) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.engines.Patience(l.Engine, guestPatience))
	defer cancel()
	if err := l.Machine.Thaw(ctx); err != nil {
		return err
	}
	return l.Guest.Thaw(ctx)
}

// seal makes a draft a snapshot, on disk and in the store.
func (s *Service) seal(ctx context.Context, draft blob.Draft, sb *store.Sandbox, build string, o freezeOptions) (*bothy.Snapshot, error) {
	m := &snapshot.Manifest{
		ID: o.id, ProjectID: sb.ProjectID, SandboxID: sb.ID, ParentID: sb.HeadSnapshotID, Name: o.name, Kind: o.kind,
		CreatedAt: s.clock.Now().UTC(), Engine: sb.Engine, EngineBuild: build, Kernel: sb.Kernel,
		Detail: o.detail, GuestKey: sb.GuestKey, Processor: s.processorOf(sb), Checkpoint: o.checkpoint,
		Sandbox: snapshot.Origin{
			Name: sb.Name, Template: sb.Template, TemplateDigest: sb.TemplateDigest,
			CPU: sb.CPU, MemoryMB: sb.MemoryMB, DiskMB: sb.DiskMB, Network: sb.Network,
			TimeoutSeconds: sb.TimeoutSeconds, OnTimeout: sb.OnTimeout, IdleSeconds: sb.IdleSeconds,
			AutoResume: sb.AutoResume, Accelerated: sb.RequireAcceleration, Env: sb.Env, Metadata: sb.Metadata,
		},
	}
	room := s.newClaim(sb.ProjectID)
	defer room.release()
	if err := sealDraft(ctx, draft, m, room); err != nil {
		return nil, err
	}
	n := record(m)
	if err := room.put(ctx, n); err != nil {
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

// sealDraft lists the parts while they are written to the disk, and makes the
// draft a snapshot if there is room for it.
func sealDraft(ctx context.Context, draft blob.Draft, m *snapshot.Manifest, room *claim) error {
	flushed := make(chan error, 1)
	go func() { flushed <- draft.Flush(ctx) }()
	err := snapshot.Seal(ctx, draft.Dir(), m)
	if err = errors.Join(err, <-flushed); err != nil {
		return err
	}
	if err := room.grow(ctx, m.Size()); err != nil {
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

// snapshotError gives the failures of the disk their own words.
func snapshotError(err error) error {
	var be *bothy.Error
	switch {
	case err == nil || errors.As(err, &be) || errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return bothy.Errorf(bothy.CodeDiskFull, "the host's disk is full, so no snapshot could be written; the sandbox runs on").
			WithHint("Delete snapshots that are not needed (bothy snapshots), or ask the operator for space.").Because(err)
	}
	return bothy.Errorf(bothy.CodeEngine, "the snapshot could not be written; the sandbox runs on").
		WithHint("Try again; the server's log has the cause.").Because(err)
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

// frozen is a snapshot that is about to be woken, once or more often. Its files
// are being checked, once, since it was made.
type frozen struct {
	dir string
	m   *snapshot.Manifest
	// filesOnly leaves its memory aside.
	filesOnly bool
	// verified waits for what the check has found.
	verified func() error
	// ahead is a machine that was woken from it before it was needed, if any.
	ahead *ahead
}

// ahead is a machine that is being restored while its sandbox still has another.
type ahead struct {
	cancel  context.CancelFunc
	done    chan struct{}
	machine bothy.Machine
	how     *bothy.Resumed
	err     error
}

// restoreAhead begins to wake a machine for sb, which stays as it is, where the host has
// memory for two. The next wake takes it.
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

// discardAhead ends a machine that was woken ahead and is not needed.
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

// checking begins to check a snapshot, whose folder stays open until verified has
// returned.
func checking(ctx context.Context, dir string, m *snapshot.Manifest) *frozen {
	found := make(chan error, 1)
	go func() { found <- snapshot.Verify(ctx, dir, m, false) }()
	return &frozen{dir: dir, m: m, verified: sync.OnceValue(func() error { return <-found })}
}

// restore starts a machine from a snapshot: with its memory if there is the engine build
// that wrote it, and otherwise with its files. It says which.
func (s *Service) restore(ctx context.Context, sb *store.Sandbox, t *bothy.Template, from *frozen) (bothy.Machine, *bothy.Resumed, error) {
	if a := from.ahead; a != nil {
		from.ahead = nil
		defer a.cancel()
		if <-a.done; a.err == nil {
			return a.machine, a.how, nil
		}
		s.log.Debug("a machine could not be woken ahead", "sandbox", sb.ID, "error", a.err)
	}
	return s.restoreMachine(ctx, sb, t, from, false)
}

func (s *Service) restoreMachine(ctx context.Context, sb *store.Sandbox, t *bothy.Template, from *frozen, concurrent bool) (bothy.Machine, *bothy.Resumed, error) {
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
		how.Kind, how.Detail = bothy.SnapshotFiles, cmp.Or(m.Detail, "the snapshot holds files only: processes were not kept")
	case from.filesOnly:
		how.Kind, how.Detail = bothy.SnapshotFiles, "the memory was left aside, as asked: the files are back, the processes are gone"
	case m.Engine != sb.Engine:
		how.Kind = bothy.SnapshotFiles
		how.Detail = fmt.Sprintf("the memory was written by the engine %s and this sandbox runs on %s: the files are back, the processes are gone", m.Engine, sb.Engine)
	default:
		release, why := s.holdBuild(engine, m.EngineBuild)
		defer release()
		if why != "" {
			how.Kind = bothy.SnapshotFiles
			how.Detail = fmt.Sprintf("the memory was written by engine build %s, %s: the files are back, the processes are gone", m.EngineBuild, why)
			break
		}
		if host := engine.Info().Host; !host.Wakes(m.Processor) {
			if s.o.NoHost != nil {
				return nil, nil, s.o.NoHost(ctx, m.ID, *needsOf(m))
			}
			how.Kind = bothy.SnapshotFiles
			how.Detail = fmt.Sprintf("the memory was written on another processor, %s, and this host has %s: the files are back, the processes are gone", m.Processor, missing(host, m.Processor))
		}
	}
	var machine bothy.Machine
	if how.Kind == bothy.SnapshotMemory {
		// What is damaged may keep an engine busy for ever.
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
			s.log.Warn("memory cannot be woken on this host", "sandbox", sb.ID, "snapshot", m.ID, "error", err)
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

// templateOf finds the image that memory was written with, under the name that it had then if
// that still has it: older builds of engines want it at the same path.
func (s *Service) templateOf(ctx context.Context, project, name, digest string) (*bothy.Template, error) {
	if ref, err := bothy.ParseTemplateRef(name); err == nil && ref.Name != "" {
		if t, err := s.o.Templates.LookupFor(ctx, project, ref.Name+"@"+digest); err == nil {
			return t, nil
		}
	}
	return s.o.Templates.LookupFor(ctx, project, digest)
}

// restoreTemplate starts a machine without an owner from the memory of a template.
func (s *Service) restoreTemplate(ctx context.Context, sb *store.Sandbox, t *bothy.Template, snapshotID string) (bothy.Machine, string, error) {
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
