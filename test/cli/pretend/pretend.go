// Package pretend is a server without sandboxes, for testing clients: each
// sandbox is a temporary folder, and its commands are processes of this host.
// It isolates nothing. Only tests use it.
package pretend

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Key opens everything. ReadKey may only read.
const (
	Key     = "bothy_00000000000000000000000000000001"
	ReadKey = "bothy_00000000000000000000000000000002"
)

// World holds the sandboxes.
type World struct {
	dir string

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	templates map[string]*bothy.Template
	tokens    map[string]*store.Token
	snapshots map[string]*bothy.Snapshot
	nextPID   int
}

type sandbox struct {
	bothy.Sandbox
	root      string
	processes map[int]*process
}

// New makes a world whose sandboxes live below dir. It holds one template.
func New(dir string) *World {
	w := &World{
		dir: dir, nextPID: 100,
		sandboxes: map[string]*sandbox{},
		templates: map[string]*bothy.Template{},
		tokens:    map[string]*store.Token{},
		snapshots: map[string]*bothy.Snapshot{},
	}
	w.addTemplate("python-3.12")
	w.addToken(Key, "everything", bothy.AllScopes)
	w.addToken(ReadKey, "read only", []bothy.Scope{bothy.ScopeSandboxesRead})
	return w
}

// Close kills what still runs.
func (w *World) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sandboxes {
		s.killAll()
	}
}

func newID(prefix string) string {
	b := make([]byte, 6)
	_, _ = rand.Read(b)
	return prefix + hex.EncodeToString(b)
}

// find returns a live sandbox.
func (w *World) find(id string) (*sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.sandboxes[id]
	switch {
	case !ok:
		return nil, notFound(id)
	case s.State.Ended():
		return nil, bothy.Errorf(bothy.CodeSandboxEnded, "sandbox %s has ended", id).WithHint("Create another one.")
	case s.State == bothy.StatePaused:
		return nil, bothy.Errorf(bothy.CodeSandboxPaused, "sandbox %s is paused", id).WithHint("Resume it first: POST /v1/sandboxes/%s/resume, or create it with auto_resume.", id)
	}
	return s, nil
}

func notFound(id string) error {
	return bothy.Errorf(bothy.CodeSandboxNotFound, "there is no sandbox %q", id).WithHint("List your sandboxes with `bothy ls`.")
}

// Sandboxes is the bothy.SandboxService of a world.
type Sandboxes struct{ *World }

// Create makes a folder.
func (w Sandboxes) Create(_ context.Context, req bothy.SandboxCreate) (*bothy.Sandbox, error) {
	s, err := w.fill(req)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(s.root, bothy.DefaultCwd), 0o755); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sandboxes[s.ID] = s
	return s.copy(), nil
}

// fill applies the defaults.
func (w Sandboxes) fill(req bothy.SandboxCreate) (*sandbox, error) {
	if req.RequireAcceleration {
		return nil, bothy.Errorf(bothy.CodeInvalid, "require_acceleration is only for virtual machines").WithHint("Ask for the engine microvm.")
	}
	s := &sandbox{processes: map[int]*process{}}
	now := time.Now().UTC()
	s.Sandbox = bothy.Sandbox{
		ID: newID("sbx"), Name: req.Name, State: bothy.StateRunning, Template: req.Template, Engine: "pretend",
		CPU: req.CPU, MemoryMB: req.MemoryMB, DiskMB: req.DiskMB, CreatedAt: now, StartedAt: &now,
		TimeoutSeconds: bothy.DefaultTimeoutSeconds, OnTimeout: bothy.TimeoutTerminate, IdleSeconds: req.IdleSeconds, OnHostLoss: req.OnHostLoss, CheckpointSeconds: req.CheckpointSeconds, Env: req.Env, Metadata: req.Metadata,
	}
	s.root = filepath.Join(w.dir, s.ID)
	if size, ok := bothy.Sizes[req.Size]; ok {
		s.CPU, s.MemoryMB, s.DiskMB = size.CPU, size.MemoryMB, size.DiskMB
	}
	setDefault(&s.Template, bothy.DefaultTemplate)
	setDefault(&s.CPU, bothy.DefaultCPU)
	setDefault(&s.MemoryMB, bothy.DefaultMemoryMB)
	setDefault(&s.DiskMB, bothy.DefaultDiskMB)
	if req.Network != nil {
		s.Network = *req.Network
	}
	if req.TimeoutSeconds != nil {
		s.TimeoutSeconds = *req.TimeoutSeconds
	}
	expires := now.Add(time.Duration(s.TimeoutSeconds) * time.Second)
	s.ExpiresAt = &expires
	return s, w.check(&s.Sandbox)
}

func (w Sandboxes) check(s *bothy.Sandbox) error {
	if s.CPU > bothy.MaxCPU {
		return bothy.Errorf(bothy.CodeInvalid, "cpu %v is over the limit of %v", s.CPU, bothy.MaxCPU).WithHint("Ask for less.")
	}
	_, err := Templates(w).find(s.Template)
	return err
}

func setDefault[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

func (s *sandbox) copy() *bothy.Sandbox {
	c := s.Sandbox
	return &c
}

// Get finds a sandbox, also an ended one.
func (w Sandboxes) Get(_ context.Context, id string) (*bothy.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.sandboxes[id]
	if !ok {
		return nil, notFound(id)
	}
	return s.copy(), nil
}

// List lists sandboxes, newest first, in pages of two, so that clients must
// turn pages.
func (w Sandboxes) List(_ context.Context, f bothy.SandboxFilter) (bothy.Page[*bothy.Sandbox], error) {
	page := bothy.Page[*bothy.Sandbox]{Items: []*bothy.Sandbox{}}
	all := w.matching(f)
	from := slices.IndexFunc(all, func(s *bothy.Sandbox) bool { return s.ID == f.Cursor }) + 1
	page.Items = append(page.Items, all[from:min(from+2, len(all))]...)
	if from+2 < len(all) {
		page.NextCursor = all[from+1].ID
	}
	return page, nil
}

func (w Sandboxes) matching(f bothy.SandboxFilter) []*bothy.Sandbox {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*bothy.Sandbox
	for _, s := range w.sandboxes {
		if matches(&s.Sandbox, f) {
			list = append(list, s.copy())
		}
	}
	slices.SortFunc(list, func(a, b *bothy.Sandbox) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return list
}

func matches(s *bothy.Sandbox, f bothy.SandboxFilter) bool {
	for k, v := range f.Metadata {
		if s.Metadata[k] != v {
			return false
		}
	}
	return (f.Name == "" || f.Name == s.Name) && (len(f.States) == 0 || slices.Contains(f.States, s.State))
}

// Update changes a sandbox.
func (w Sandboxes) Update(_ context.Context, id string, u bothy.SandboxUpdate) (*bothy.Sandbox, error) {
	s, err := w.find(id)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if u.Secrets != nil {
		s.SecretNames = nil
		for _, one := range u.Secrets {
			s.SecretNames = append(s.SecretNames, one.Name)
		}
	}
	if u.Network != nil {
		s.Network = *u.Network
	}
	if u.Name != nil {
		s.Name = *u.Name
	}
	return s.copy(), nil
}

// Restart starts one that has failed again, which none has.
func (w Sandboxes) Restart(_ context.Context, id string) (*bothy.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.sandboxes[id]
	if !ok {
		return nil, notFound(id)
	}
	return nil, bothy.Errorf(bothy.CodeConflict, "sandbox %s is %s; only failed sandboxes can be restarted", id, s.State)
}

// Terminate ends a sandbox.
func (w Sandboxes) Terminate(_ context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.sandboxes[id]
	if !ok {
		return notFound(id)
	}
	if s.State.Ended() {
		return nil
	}
	s.killAll()
	s.State = bothy.StateStopped
	s.Ended = &bothy.Ended{Reason: bothy.EndTerminated, Detail: "terminated by its owner", At: time.Now().UTC()}
	return os.RemoveAll(s.root)
}
