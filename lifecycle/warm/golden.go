package warm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/internal/cleanup"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// A golden snapshot is a machine that was booted, warmed up and frozen before it had an owner.
// Sandboxes of its class are restored from it instead of booted. It is only an optimisation: if
// it cannot be restored, the sandbox boots.
type golden struct {
	name string
	dir  string // contains the memory
	Key  string // the key of its guest
	size int64
	used time.Time
	// files are the parts as they were when their checksums were verified.
	files []os.FileInfo
}

// unchanged returns an error if a file was changed since its checksum was verified.
func (g *golden) unchanged() error {
	for _, was := range g.files {
		is, err := os.Stat(filepath.Join(g.dir, was.Name()))
		if err != nil {
			return err
		}
		if !os.SameFile(was, is) || is.Size() != was.Size() || !is.ModTime().Equal(was.ModTime()) {
			return fmt.Errorf("%s has changed", was.Name())
		}
	}
	return nil
}

// goldenPause is the pause after a failure to make a golden snapshot.
const goldenPause = 10 * time.Minute

// goldens are the golden snapshots of a server.
type goldens struct {
	store blob.Store
	max   int
	// salt is what all of them depend on in addition to their class.
	salt func() (string, error)
	// making is held while one is made. It is locked before mu.
	making sync.Mutex

	mu     sync.Mutex
	ready  map[class]*golden
	failed map[class]time.Time
}

func newGoldens(o Dependencies) *goldens {
	return &goldens{
		store: o.Golden, max: o.GoldenMax,
		salt: sync.OnceValues(func() (string, error) {
			guest, err := digestOf(o.GuestImage)
			ca := sha256.Sum256([]byte(o.CABundle))
			return guest + " " + hex.EncodeToString(ca[:]), err
		}),
		ready: map[class]*golden{}, failed: map[class]time.Time{},
	}
}

func digestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// goldenAtOnce is the number of concurrent starts up to which a golden snapshot always pays
// off: it saves the interpreter's start but is itself more work than booting. With more starts,
// it is used only for templates in which code is run.
const goldenAtOnce = 2

// Golden returns the golden snapshot to restore a new sandbox from, or nil.
func (s *Pool) Golden(sb *store.Sandbox) *golden {
	h := classOf(sb, "")
	crowd := s.o.Busy() > goldenAtOnce
	if crowd && !s.pool.runsCode(h.digest, s.o.Clock.Now()) {
		return nil
	}
	return s.golden(h)
}

// golden returns the golden snapshot of a class, or nil.
func (s *Pool) golden(h class) *golden {
	gs := s.goldens
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.ready[h]
	if g != nil {
		g.used = s.o.Clock.Now()
	}
	return g
}

// goldenName is derived from everything that affects the restore.
func (s *Pool) goldenName(h class) (string, error) {
	salt, err := s.goldens.salt()
	if err != nil {
		return "", err
	}
	i := s.o.Engines.Get(h.engine).Info()
	key := fmt.Appendf(nil, "%s %s %s %d %d %d %s", i.Build, h.engine, h.digest, h.cpus, h.memoryMB, h.diskMB, salt)
	if p := i.Shown; p.Known() {
		key = fmt.Appendf(key, " %s %d %s", p, p.CacheLine, strings.Join(p.Features, " "))
	}
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:16]), nil
}

// wantsGolden reports whether the golden snapshot of a class should be made now.
func (s *Pool) wantsGolden(h class, t *store.Template) bool {
	gs := s.goldens
	if gs.store == nil || gs.max == 0 || h.memory != "" || len(t.Warm) == 0 || !s.o.Engines.Get(h.engine).Info().Snapshots {
		return false
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	at, failed := gs.failed[h]
	return gs.ready[h] == nil && (!failed || s.o.Clock.Now().Sub(at) > goldenPause)
}

// makeGolden finds or makes the golden snapshot of a class. No request waits for it.
func (s *Pool) makeGolden(ctx context.Context, h class, t *store.Template) error {
	begun := time.Now()
	gs := s.goldens
	gs.making.Lock()
	defer gs.making.Unlock()
	if !s.wantsGolden(h, t) {
		return nil // made meanwhile
	}
	g, found, err := s.findOrMakeGolden(ctx, h, t)
	gs.mu.Lock()
	if err == nil {
		g.used = s.o.Clock.Now()
		gs.ready[h] = g
		delete(gs.failed, h)
	} else {
		gs.failed[h] = s.o.Clock.Now()
	}
	gs.mu.Unlock()
	if err != nil {
		return err
	}
	s.o.Log.Info("golden snapshot is ready", "template", t.Name, "shape", h.String(), "found", found,
		"mb", g.size>>20, "ms", time.Since(begun).Milliseconds())
	return s.dropOldGoldens(ctx)
}

func (s *Pool) findOrMakeGolden(ctx context.Context, h class, t *store.Template) (_ *golden, found bool, err error) {
	name, err := s.goldenName(h)
	if err != nil {
		return nil, false, err
	}
	g, err := s.openGolden(ctx, name, h)
	if err == nil {
		return g, true, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		s.o.Log.Warn("cannot use a golden snapshot; making it again", "template", t.Name, "error", err)
		if err := s.goldens.store.Remove(ctx, name); err != nil {
			return nil, false, err
		}
	}
	if err := s.freezeGolden(ctx, name, h, t); err != nil {
		return nil, false, err
	}
	g, err = s.openGolden(ctx, name, h)
	return g, false, err
}

// openGolden verifies the files of a golden snapshot, and that it is of the class.
func (s *Pool) openGolden(ctx context.Context, name string, h class) (*golden, error) {
	dir, release, err := s.goldens.store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer release()
	m, err := snapshot.Read(dir)
	if err != nil {
		return nil, err
	}
	if is := goldenShape(m); is != h {
		return nil, fmt.Errorf("it is for %v, not for %v", is, h)
	}
	if err := snapshot.Verify(ctx, dir, m, false); err != nil {
		return nil, err
	}
	g := &golden{name: name, dir: filepath.Join(dir, snapshot.MemoryDir), Key: m.GuestKey, size: m.Size()}
	for _, p := range m.Parts {
		info, err := os.Stat(filepath.Join(dir, p.Name))
		if err != nil {
			return nil, err
		}
		g.files = append(g.files, info)
	}
	return g, nil
}

// freezeGolden boots a machine without an owner or a network, warms it up and writes its
// snapshot.
func (s *Pool) freezeGolden(ctx context.Context, name string, h class, t *store.Template) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Engines.Patience(h.engine, instance.StartTimeout))
	defer cancel()
	var undo cleanup.Stack
	defer undo.Run()
	draft, err := s.goldens.store.Create(ctx, name)
	if err != nil {
		return err
	}
	undo.Add(draft.Discard)
	sb := h.sandbox(instance.NewID("gld"), t)
	engine := s.o.Engines.Get(h.engine)
	m, err := engine.Start(ctx, s.o.Machines.MachineSpec(sb, t))
	if err != nil {
		return err
	}
	undo.Add(func() { s.o.Machines.Destroy(m) })
	l, err := s.o.Machines.Attach(ctx, sb, m, "")
	if err != nil {
		return err
	}
	undo.Add(l.Detach)
	if err := s.o.Machines.IdentifyAs(ctx, l, sb, t, "", instance.NewSteps()); err != nil {
		return instance.StartError(m, err)
	}
	if err := warm(ctx, l.Guest, t); err != nil {
		return instance.StartError(m, err)
	}
	if err := l.Guest.Freeze(ctx); err != nil {
		return err
	}
	memory := filepath.Join(draft.Dir(), snapshot.MemoryDir)
	if err := os.Mkdir(memory, 0o711); err != nil {
		return err
	}
	if err := m.Snapshot(ctx, bothy.SnapshotOptions{MemoryDir: memory, Stop: true, Compact: true}); err != nil {
		return err
	}
	manifest := &snapshot.Manifest{
		ID: name, Kind: bothy.SnapshotMemory, CreatedAt: s.o.Clock.Now().UTC(),
		Engine: h.engine, EngineBuild: engine.Info().Build, Kernel: engine.Info().Kernel, GuestKey: sb.GuestKey,
		Sandbox: snapshot.Origin{Template: t.Name, TemplateDigest: h.digest, CPU: sb.CPU, MemoryMB: h.memoryMB, DiskMB: h.diskMB},
	}
	if p := engine.Info().Shown; p.Known() {
		manifest.Processor = &p
	}
	if err := snapshot.Seal(ctx, draft.Dir(), manifest); err != nil {
		return err
	}
	return draft.Commit(ctx)
}

// warm runs what the first user of a sandbox would have to wait for.
func warm(ctx context.Context, g bothy.Guest, t *store.Template) error {
	// An image without a shell needs no warm-up.
	_, err := g.Exec(ctx, bothy.ExecRequest{Command: bothy.Command{Line: "true"}})
	if err != nil && bothy.ErrorCode(err) != bothy.CodeCommandNotFound {
		return fmt.Errorf("run a first command: %w", err)
	}
	runner, ok := g.(bothy.CodeRunner)
	if !ok {
		return nil
	}
	for _, language := range t.Warm {
		if _, err := runner.RunCode(ctx, bothy.CodeRequest{Language: language}); err != nil {
			return fmt.Errorf("start the interpreter of %s: %w", language, err)
		}
	}
	return nil
}

// RestoreGolden starts a machine from the golden snapshot of its class.
func (s *Pool) RestoreGolden(ctx context.Context, sb *store.Sandbox, t *store.Template, g *golden) (bothy.Machine, error) {
	if err := g.unchanged(); err != nil {
		return nil, err
	}
	return s.o.Engines.Get(sb.Engine).Restore(ctx, s.o.Machines.MachineSpec(sb, t), g.dir)
}

// GoldenFailed is dropGolden for a golden snapshot that failed for a sandbox.
func (s *Pool) GoldenFailed(ctx context.Context, sb *store.Sandbox, g *golden, cause error) {
	s.dropGolden(ctx, classOf(sb, ""), g, cause)
}

// dropGolden deletes a golden snapshot that failed. It is made again after a pause.
func (s *Pool) dropGolden(ctx context.Context, h class, g *golden, cause error) {
	s.o.Log.Warn("cannot restore a golden snapshot; booting instead", "shape", h.String(), "error", cause)
	gs := s.goldens
	gs.mu.Lock()
	mine := gs.ready[h] == g
	if mine {
		delete(gs.ready, h)
		gs.failed[h] = s.o.Clock.Now()
	}
	gs.mu.Unlock()
	if !mine {
		return
	}
	if err := gs.store.Remove(ctx, g.name); err != nil {
		s.o.Log.Warn("cannot delete a golden snapshot", "error", err)
	}
}

// dropOldGoldens deletes the least recently used golden snapshots that exceed the maximum, and
// those whose template is gone.
func (s *Pool) dropOldGoldens(ctx context.Context) error {
	gs := s.goldens
	gs.mu.Lock()
	var going []*golden
	for h, g := range gs.ready {
		if _, err := s.o.Known.Lookup(h.digest); bothy.ErrorCode(err) == bothy.CodeTemplateNotFound {
			delete(gs.ready, h)
			going = append(going, g)
		}
	}
	for len(gs.ready) > gs.max {
		var oldest class
		for h, g := range gs.ready {
			if o := gs.ready[oldest]; o == nil || g.used.Before(o.used) {
				oldest = h
			}
		}
		going = append(going, gs.ready[oldest])
		delete(gs.ready, oldest)
	}
	gs.mu.Unlock()
	var errs []error
	for _, g := range going {
		s.o.Log.Info("deleting an unneeded golden snapshot", "name", g.name)
		errs = append(errs, gs.store.Remove(ctx, g.name))
	}
	return errors.Join(errs...)
}

// readGoldens deletes useless golden snapshots of an earlier server, and returns the classes of
// the others, newest first. They are not verified yet.
func (s *Pool) readGoldens(ctx context.Context) []class {
	gs := s.goldens
	if gs.store == nil || gs.max == 0 {
		return nil
	}
	names, err := gs.store.List(ctx)
	if err != nil {
		s.o.Log.Warn("cannot list the golden snapshots", "error", err)
		return nil
	}
	type dated struct {
		class
		at time.Time
	}
	var found []dated
	for _, name := range names {
		h, at, err := s.readGolden(ctx, name)
		if err == nil {
			found = append(found, dated{h, at})
			continue
		}
		if errors.Is(err, errNotOpen) {
			continue
		}
		s.o.Log.Info("deleting a useless golden snapshot", "name", name, "reason", err)
		if err := gs.store.Remove(ctx, name); err != nil {
			s.o.Log.Warn("cannot delete a golden snapshot", "error", err)
		}
	}
	slices.SortFunc(found, func(a, b dated) int { return b.at.Compare(a.at) })
	shapes := make([]class, len(found))
	for i, f := range found {
		shapes[i] = f.class
	}
	return shapes
}

// errNotOpen means that a golden snapshot cannot be judged yet.
var errNotOpen = errors.New("its engine is not open")

func (s *Pool) readGolden(ctx context.Context, name string) (class, time.Time, error) {
	dir, release, err := s.goldens.store.Open(ctx, name)
	if err != nil {
		return class{}, time.Time{}, err
	}
	defer release()
	m, err := snapshot.Read(dir)
	if err != nil {
		return class{}, time.Time{}, err
	}
	if s.o.Engines.Get(m.Engine) == nil {
		if s.o.Engines.Known(m.Engine) {
			return class{}, time.Time{}, errNotOpen
		}
		return class{}, time.Time{}, fmt.Errorf("there is no engine %q", m.Engine)
	}
	if _, err := s.o.Known.Lookup(m.Sandbox.TemplateDigest); err != nil {
		return class{}, time.Time{}, err
	}
	h := goldenShape(m)
	if build := s.o.Engines.Get(m.Engine).Info().Build; m.EngineBuild != build {
		return class{}, time.Time{}, fmt.Errorf("another build of the engine made it: %s", m.EngineBuild)
	}
	want, err := s.goldenName(h)
	if err != nil {
		return class{}, time.Time{}, err
	}
	if want != name {
		return class{}, time.Time{}, errors.New("the guest or the trusted certificates have changed since")
	}
	return h, m.CreatedAt, nil
}

// goldenShape is the class of the machine in a golden snapshot.
func goldenShape(m *snapshot.Manifest) class {
	o := m.Sandbox
	return class{engine: m.Engine, digest: o.TemplateDigest, cpus: int(o.CPU), memoryMB: o.MemoryMB, diskMB: o.DiskMB}
}
