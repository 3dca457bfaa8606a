package lifecycle_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy/lifecycle/warm"
	"github.com/bothy-dev/bothy/store"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access/vault"
	blobdir "github.com/bothy-dev/bothy/blob/dir"
	"github.com/bothy-dev/bothy/engine/fake"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store/sqlite"
)

// world is a host with a server, which can be killed and replaced by another while the host stays.
type world struct {
	t            *testing.T
	dir          string
	host         *fake.Host
	build        string
	acceleration bothy.Acceleration // the engine's acceleration
	clock        *clock
	image        string

	*lifecycle.Service
	engine *fake.Engine
	store  *sqlite.Store
	guests *guests

	gateways *gateways

	networkLogs networkLogs
	retention   lifecycle.Retention

	pool      warm.Options
	free      func() int // the host's free memory; nil asks the host
	minFree   int
	change    func(*lifecycle.Options) // changes a server's options
	templates lifecycle.Templates
	log       *slog.Logger
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), host: &fake.Host{}, build: "build-1", clock: newClock(), guests: &guests{}, gateways: &gateways{}}
	w.image = filepath.Join(w.dir, "image")
	if err := os.WriteFile(w.image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.open()
	t.Cleanup(w.closeServer)
	return w
}

func (w *world) open() {
	w.t.Helper()
	secrets, err := vault.Open(filepath.Join(w.dir, "key"))
	if err != nil {
		w.t.Fatal(err)
	}
	st, err := sqlite.Open(w.t.Context(), filepath.Join(w.dir, "bothy.db"))
	if err != nil {
		w.t.Fatal(err)
	}
	blobs, err := blobdir.Open(filepath.Join(w.dir, "snapshots"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.store = st
	info := fake.New(w.host, w.build).Info()
	info.Acceleration = w.acceleration
	w.engine = fake.As(w.host, info)
	known := w.templates
	if known == nil {
		known = templates{w.image}
	}
	o := lifecycle.Options{
		Store: st, Blobs: blobs, Templates: known, GuestImage: w.image,
		Engines: map[string]bothy.Engine{"fake": w.engine}, Engine: "fake",
		NewGateway: func(id string, c bothy.NetDevice) (bothy.Gateway, error) { return w.gateways.add(c), nil },
		NewGuest: func(_ func(context.Context) (net.Conn, error), key string) bothy.Guest {
			return w.guests.add(key)
		},
		CheckNetwork: func(n bothy.Network) error { return refuseBad(n.AllowDomains) },
		CheckSecrets: func(list []bothy.Secret) error { return refuseBad(list[0].Hosts) },
		NetworkLogs:  &w.networkLogs,
		ArchiveKey:   snapshot.NewKey(secrets.Derive("snapshot archives")),
		Vault:        secrets, Clock: w.clock, Retention: w.retention, MaxSandboxes: 50,
		Pool: w.pool, FreeMemoryMB: w.free, MinFreeMemoryMB: w.minFree, Log: w.log,
	}
	if w.change != nil {
		w.change(&o)
	}
	w.Service = lifecycle.New(o)
}

func (w *world) closeServer() {
	w.Service.Close()
	w.store.Close()
}

// restart replaces the server with another, which takes over.
func (w *world) restart() {
	w.t.Helper()
	w.closeServer()
	w.open()
	if _, err := w.Recover(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// as returns the context of a caller with every scope in a project.
func as(t *testing.T, project string) context.Context {
	return bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: project, Scopes: bothy.AllScopes})
}

func (w *world) me() context.Context { return as(w.t, "mine") }

func (w *world) create(req bothy.SandboxCreate) *bothy.Sandbox {
	w.t.Helper()
	sb, err := w.Create(w.me(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	return sb
}

func (w *world) get(id string) *bothy.Sandbox {
	w.t.Helper()
	sb, err := w.Get(w.me(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return sb
}

func (w *world) machine(id string) *fake.Machine {
	w.t.Helper()
	m, err := w.engine.Adopt(w.t.Context(), id, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return m.(*fake.Machine)
}

// eventually waits for something that another goroutine is about to do.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen: %s", what)
		}
	}
}

func wantCode(t *testing.T, err error, code bothy.Code) {
	t.Helper()
	if bothy.ErrorCode(err) != code {
		t.Errorf("got %v, want code %q", err, code)
		return
	}
	if e := bothy.AsError(err); e.Detail == "" {
		t.Errorf("%v has no text for a person", err)
	}
}

type templates struct{ image string }

var digest = "sha256:" + strings.Repeat("1", 64)

func (t templates) LookupFor(_ context.Context, _, name string) (*store.Template, error) {
	return t.Lookup(name)
}

func (t templates) Lookup(name string) (*store.Template, error) {
	if name == "none" {
		return nil, bothy.Errorf(bothy.CodeTemplateNotFound, "there is no template %q", name)
	}
	return &store.Template{Template: bothy.Template{Name: name, Digest: digest, Env: map[string]string{"T": "template"}}, RootFS: t.image}, nil
}

// gateway records its policy.
type gateway struct {
	dev     bothy.NetDevice
	mu      sync.Mutex
	policy  bothy.Network
	set     int
	secrets []bothy.Secret
	seed    []byte
	all     *gateways
}

// gateways are the gateways of all machines, in order.
type gateways struct {
	mu  sync.Mutex
	all []*gateway
	// refuse, if set, can refuse a policy.
	refuse func(bothy.Network) error
}

func (g *gateways) add(c bothy.NetDevice) *gateway {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := &gateway{dev: c, all: g}
	g.all = append(g.all, n)
	return n
}

func (g *gateways) last() *gateway {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[len(g.all)-1]
}

func (g *gateway) Dial(context.Context, uint16) (net.Conn, error) {
	return nil, errors.New("not connected")
}
func (g *gateway) Counters() bothy.NetworkCounters       { return bothy.NetworkCounters{} }
func (g *gateway) Log(time.Time) []bothy.NetworkDecision { return nil }
func (g *gateway) Close() error                          { return g.dev.Close() }

func (g *gateway) Follow(ctx context.Context, _ time.Time, _ func(bothy.NetworkDecision) error) error {
	<-ctx.Done()
	return ctx.Err()
}

func (g *gateway) SetPolicy(n bothy.Network) error {
	g.all.mu.Lock()
	refuse := g.all.refuse
	g.all.mu.Unlock()
	if refuse != nil {
		if err := refuse(n); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.policy = n
	g.set++
	return nil
}

// guests are the guests of all machines, in the order in which a server first requested them.
type guests struct {
	mu  sync.Mutex
	all []*guest
	// failAdopt, if set, is the error of every adoption.
	failAdopt error
	// onAdopt, if set, is called by every adoption and can fail it.
	onAdopt func(context.Context, bothy.Identity) error
	// onAdd, if set, is called with every new guest.
	onAdd func(*guest)
}

func (g *guests) add(key string) *guest {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := &guest{all: g, firstKey: key, stats: bothy.GuestStats{Processes: 1}}
	g.all = append(g.all, n)
	if g.onAdd != nil {
		g.onAdd(n)
	}
	return n
}

func (g *guests) last() *guest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[len(g.all)-1]
}

// guest implements what the tests use; everything else is a nil pointer.
type guest struct {
	bothy.Guest
	all      *guests
	firstKey string

	mu     sync.Mutex
	id     bothy.Identity
	killed int
	stats  bothy.GuestStats
	ports  map[uint16]bool
	site   *site    // on port 8000
	lines  []string // the commands that it ran
	// deadlines are those of its freezes and thaws.
	deadlines []time.Time
	// onExec, if set, is called by every command and can fail it.
	onExec func() error
	// run, if set, is what commands do.
	run    func(bothy.ExecRequest) *bothy.ExecResult
	waited []bothy.WaitRequest
}

func (g *guest) WaitReady(context.Context) error { return nil }
func (g *guest) CloseIdle()                      {}

// Freeze and Thaw note until when they may take.
func (g *guest) Freeze(ctx context.Context) error { return g.noteDeadline(ctx) }
func (g *guest) Thaw(ctx context.Context) error   { return g.noteDeadline(ctx) }

func (g *guest) noteDeadline(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, _ := ctx.Deadline()
	g.deadlines = append(g.deadlines, at)
	return ctx.Err()
}

func (g *guest) Adopt(ctx context.Context, id bothy.Identity) error {
	g.all.mu.Lock()
	err, hook := g.all.failAdopt, g.all.onAdopt
	g.all.mu.Unlock()
	if hook != nil && err == nil {
		err = hook(ctx, id)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.id = id
	return err
}

func (g *guest) identity() bothy.Identity {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.id
}

func (g *guest) KillLargest(context.Context, int64) (bothy.Killed, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.killed++
	return bothy.Killed{Done: true, Name: "hog"}, nil
}

func (g *guest) Exec(_ context.Context, req bothy.ExecRequest) (*bothy.ExecResult, error) {
	g.mu.Lock()
	g.lines = append(g.lines, req.Command.Line)
	hook := g.onExec
	g.mu.Unlock()
	if hook != nil {
		if err := hook(); err != nil {
			return nil, err
		}
	}
	if g.run != nil {
		return g.run(req), nil
	}
	return &bothy.ExecResult{Stdout: req.Command.Line}, nil
}

func (g *guest) ExecStream(ctx context.Context, req bothy.ExecRequest, fn func(bothy.ExecEvent) error) error {
	_, err := g.Exec(ctx, req)
	if err != nil {
		return err
	}
	return fn(bothy.ExecEvent{IsFinal: true})
}

// clock is a clock that tests advance.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*timer
}

type timer struct {
	at      time.Time
	f       func()
	stopped bool
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{at: c.now.Add(d), f: f}
	c.timers = append(c.timers, t)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		was := !t.stopped
		t.stopped = true
		return was
	}
}

// pass advances the clock and runs the timers that are due, in order.
func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var due []*timer
	for _, t := range c.timers {
		if !t.stopped && !t.at.After(c.now) {
			t.stopped = true
			due = append(due, t)
		}
	}
	c.mu.Unlock()
	for _, t := range due {
		t.f()
	}
}

// row returns the stored record of a sandbox, which may differ from the server's view.
func (w *world) row(id string) *store.Sandbox {
	w.t.Helper()
	sb, err := w.store.Sandbox(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return sb
}
