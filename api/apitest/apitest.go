// Package apitest is a fake Bothy for tests of what is in front of the services: the APIs and
// the clients. It holds sandboxes, files and snapshots in memory and knows a few commands.
package apitest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
)

// World implements every service.
type World struct {
	mu        sync.Mutex
	err       error
	next      int
	sandboxes map[string]*sandbox
	order     []string
	snapshots []*bothy.Snapshot
	templates map[string]*bothy.Template
	events    []bothy.Event
	changed   chan struct{} // closed and replaced at every event

	// Created is the last create request.
	Created bothy.SandboxCreate
	// Updated is the last change.
	Updated bothy.SandboxUpdate
	// Executed is the last command.
	Executed bothy.ExecRequest
	// Waited is the last wait.
	Waited bothy.WaitRequest
	// Server is what listens on port 8080 of every sandbox.
	Server http.Handler
	// Fetched counts the requests that a port's kept connections may serve.
	Fetched atomic.Int64
	// PageSize, when not zero, bounds each page of sandboxes.
	PageSize int
	// Plain makes ids of letters and digits alone.
	Plain bool
	// Ran is the last piece of code, and Done lists actions on contexts.
	Ran  bothy.CodeRequest
	Done []string
	// RefuseImports refuses archives before a byte of them is read.
	RefuseImports bool
	// Canceled receives the id of every sandbox in which a command was cancelled.
	Canceled chan string
	// left is the terminal that was detached last.
	left *terminal
	// Finish, when closed, ends the command "wait".
	Finish chan struct{}
	// Busy, if not nil, blocks Create until it is closed; each call sends to Waiting first.
	Busy    chan struct{}
	Waiting chan struct{}
}

type sandbox struct {
	bothy.Sandbox
	files     map[string]*file
	processes map[int]*process
	contexts  []bothy.CodeContext
}

// Epoch is the time at which everything happens.
var Epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var (
	_ bothy.SandboxService  = (*World)(nil)
	_ bothy.ExecService     = (*World)(nil)
	_ bothy.CodeService     = (*World)(nil)
	_ bothy.FileService     = Files{}
	_ bothy.SnapshotService = (*World)(nil)
	_ bothy.TemplateService = (*World)(nil)
	_ bothy.EventService    = (*World)(nil)
	_ bothy.NetworkService  = (*World)(nil)
	_ bothy.MetricsService  = (*World)(nil)
	_ bothy.PortService     = (*World)(nil)
)

// New makes a world with one template.
func New() *World {
	return &World{
		sandboxes: map[string]*sandbox{}, changed: make(chan struct{}),
		templates: map[string]*bothy.Template{bothy.DefaultTemplate: {
			Version: bothy.ManifestVersion, Name: bothy.DefaultTemplate, Digest: "sha256:00", SizeBytes: 1, CreatedAt: Epoch,
		}},
		Canceled: make(chan string, 10), Finish: make(chan struct{}), Waiting: make(chan struct{}, 100),
	}
}

// Fail makes every call fail from now on, until it is called with nil.
func (w *World) Fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

func (w *World) failing() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// id makes a new id. The caller holds w.mu.
func (w *World) id(prefix string) string {
	w.next++
	if w.Plain {
		return fmt.Sprintf("%s%04d", prefix, w.next)
	}
	return fmt.Sprintf("%s-%04d", prefix, w.next)
}

// get finds a sandbox of the caller's project. The caller holds w.mu.
func (w *World) get(ctx context.Context, id string, scope bothy.Scope) (*sandbox, error) {
	caller, err := bothy.Require(ctx, scope)
	if err != nil {
		return nil, err
	}
	if w.err != nil {
		return nil, w.err
	}
	b := w.sandboxes[id]
	if b == nil || b.ProjectID != caller.ProjectID {
		return nil, bothy.Errorf(bothy.CodeSandboxNotFound, "there is no sandbox %q", id).WithHint("List them with `bothy ls`.")
	}
	return b, nil
}

// event adds an event. The caller holds w.mu.
func (w *World) event(kind string, b *sandbox) {
	w.events = append(w.events, bothy.Event{
		ID: int64(len(w.events) + 1), Time: Epoch, Type: kind, SandboxID: b.ID, ProjectID: b.ProjectID,
	})
	close(w.changed)
	w.changed = make(chan struct{})
}

// Create implements bothy.SandboxService.
func (w *World) Create(ctx context.Context, req bothy.SandboxCreate) (*bothy.Sandbox, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	if w.Busy != nil {
		w.Waiting <- struct{}{}
		select {
		case <-w.Busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	w.Created = req
	b := &sandbox{files: map[string]*file{}, processes: map[int]*process{}}
	b.Sandbox = bothy.Sandbox{
		ID: w.id("sbx"), Name: req.Name, State: bothy.StateRunning, Template: req.Template, Engine: "fake",
		CPU: req.CPU, MemoryMB: req.MemoryMB, DiskMB: req.DiskMB, CreatedAt: Epoch, ProjectID: caller.ProjectID,
		Env: req.Env, Metadata: req.Metadata, OnTimeout: req.OnTimeout, IdleSeconds: req.IdleSeconds, AutoResume: req.AutoResume, OnHostLoss: cmp.Or(req.OnHostLoss, bothy.HostLossPause), CheckpointSeconds: req.CheckpointSeconds,
		TimeoutSeconds: bothy.DefaultTimeoutSeconds, ParentSnapshotID: req.SnapshotID,
	}
	if req.Template == "" {
		b.Template = bothy.DefaultTemplate
	}
	if req.Network != nil {
		b.Network = *req.Network
	}
	if req.TimeoutSeconds != nil {
		b.TimeoutSeconds = *req.TimeoutSeconds
	}
	w.sandboxes[b.ID] = b
	w.order = append(w.order, b.ID)
	w.event(bothy.EventSandboxCreated, b)
	return copyOf(b), nil
}

func copyOf(b *sandbox) *bothy.Sandbox {
	c := b.Sandbox
	return &c
}

// Get implements bothy.SandboxService.
func (w *World) Get(ctx context.Context, id string) (*bothy.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.get(ctx, id, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, err
	}
	return copyOf(b), nil
}

// List implements bothy.SandboxService. The cursor is the id of the last one.
func (w *World) List(ctx context.Context, f bothy.SandboxFilter) (p bothy.Page[*bothy.Sandbox], err error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return p, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return p, w.err
	}
	if w.PageSize > 0 && (f.Limit == 0 || f.Limit > w.PageSize) {
		f.Limit = w.PageSize
	}
	for i := len(w.order) - 1; i >= 0; i-- {
		b := w.sandboxes[w.order[i]]
		if b.ProjectID != caller.ProjectID || !matches(b, f) {
			continue
		}
		if len(p.Items) == f.Limit && f.Limit > 0 {
			p.NextCursor = p.Items[len(p.Items)-1].ID
			break
		}
		p.Items = append(p.Items, copyOf(b))
	}
	return p, nil
}

func matches(b *sandbox, f bothy.SandboxFilter) bool {
	if f.Cursor != "" && b.ID >= f.Cursor || f.Name != "" && b.Name != f.Name {
		return false
	}
	for k, v := range f.Metadata {
		if b.Metadata[k] != v {
			return false
		}
	}
	for _, s := range f.States {
		if b.State == s {
			return true
		}
	}
	return len(f.States) == 0
}

// Update implements bothy.SandboxService.
func (w *World) Update(ctx context.Context, id string, u bothy.SandboxUpdate) (*bothy.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.get(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	w.Updated = u
	if u.Name != nil {
		b.Name = *u.Name
	}
	if u.Metadata != nil {
		b.Metadata = u.Metadata
	}
	if u.TimeoutSeconds != nil {
		b.TimeoutSeconds = *u.TimeoutSeconds
	}
	if u.Network != nil {
		b.Network = *u.Network
	}
	if u.OnTimeout != nil {
		b.OnTimeout = *u.OnTimeout
	}
	if u.IdleSeconds != nil {
		b.IdleSeconds = *u.IdleSeconds
	}
	if u.CheckpointSeconds != nil {
		b.CheckpointSeconds = *u.CheckpointSeconds
	}
	if u.OnHostLoss != nil {
		b.OnHostLoss = *u.OnHostLoss
	}
	if u.Budget != nil {
		b.Budget = *u.Budget
	}
	w.event(bothy.EventSandboxUpdated, b)
	return copyOf(b), nil
}

// Restart implements bothy.SandboxService.
func (w *World) Restart(ctx context.Context, id string) (*bothy.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.get(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	if b.State != bothy.StateFailed {
		return nil, bothy.Errorf(bothy.CodeConflict, "sandbox %s is %s; only failed sandboxes can be restarted", id, b.State)
	}
	b.State, b.Ended = bothy.StateRunning, nil
	w.event(bothy.EventSandboxRestarted, b)
	return copyOf(b), nil
}

// Terminate implements bothy.SandboxService.
func (w *World) Terminate(ctx context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.get(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil || b.State.Ended() {
		return err
	}
	b.State = bothy.StateStopped
	b.Ended = &bothy.Ended{Reason: bothy.EndTerminated, Detail: "terminated by its owner", At: Epoch}
	w.event(bothy.EventSandboxEnded, b)
	return nil
}
