package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/engines"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

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

// openedSnapshot is a snapshot that is about to be restored, possibly more than once. Its files are
// verified in the background.
type openedSnapshot struct {
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
func (s *Service) restoreAhead(ctx context.Context, sb *store.Sandbox, from *openedSnapshot) {
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
func (s *Service) discardAhead(from *openedSnapshot) {
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
func checking(ctx context.Context, dir string, m *snapshot.Manifest) *openedSnapshot {
	found := make(chan error, 1)
	go func() { found <- snapshot.Verify(ctx, dir, m, false) }()
	return &openedSnapshot{dir: dir, m: m, verified: sync.OnceValue(func() error { return <-found })}
}

// restore starts a machine from a snapshot: with its memory if the engine build that wrote it
// is available, and otherwise only with its files. It reports which.
func (s *Service) restore(ctx context.Context, sb *store.Sandbox, t *store.Template, from *openedSnapshot) (bothy.Machine, *bothy.Resumed, error) {
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

func (s *Service) restoreMachine(ctx context.Context, sb *store.Sandbox, t *store.Template, from *openedSnapshot, concurrent bool) (bothy.Machine, *bothy.Resumed, error) {
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
