package metering_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/metering"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/sqlite"
)

// clock is a clock that tests advance, and can set wrong.
type clock struct {
	mu sync.Mutex
	at store.Moment
}

func (c *clock) Now() store.Moment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at.Uptime += d
	c.at.Wall = c.at.Wall.Add(d)
}

// set sets the clock's wall time.
func (c *clock) set(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at.Wall = c.at.Wall.Add(d)
}

func (c *clock) reboot(boot string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at.Boot, c.at.Uptime = boot, time.Minute
}

// disk is a store whose disk can be full.
type disk struct {
	store.Usage
	mu    sync.Mutex
	full  bool
	after bool // fail although it has been written
}

var errFull = errors.New("database or disk is full")

func (d *disk) WriteUsage(ctx context.Context, b store.UsageBatch) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return errFull
	}
	err := d.Usage.WriteUsage(ctx, b)
	if d.after && err == nil {
		err = errFull
	}
	return err
}

func (d *disk) set(full, after bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full, d.after = full, after
}

// world is a host with a meter on it, which can be killed.
type world struct {
	t     *testing.T
	path  string
	clock *clock
	db    *sqlite.Store
	disk  *disk
	rates bothy.Rates
	*metering.Meter

	mu        sync.Mutex
	snapshots []*bothy.Snapshot
	templates []*store.Template
	sandboxes map[string]*store.Sandbox
	machines  map[string]*machine
	told      []bothy.Event
	paused    chan string // project and root, of the first
}

// machine has counters.
type machine struct {
	mu      sync.Mutex
	reading bothy.MeterReading
	err     error
}

func (m *machine) read(context.Context) (bothy.MeterReading, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reading, m.err
}

func (m *machine) use(cpu float64, out, in int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reading.CPUSeconds += cpu
	m.reading.EgressBytes += out
	m.reading.IngressBytes += in
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, path: filepath.Join(t.TempDir(), "b.db"),
		clock:     &clock{at: store.Moment{Wall: time.Date(2026, 3, 10, 12, 30, 0, 0, time.UTC), Boot: "boot-1", Uptime: time.Hour}},
		rates:     bothy.Rates{Currency: "EUR", VCPUHour: 3600}, // a second of a vCPU costs 1
		paused:    make(chan string, 1),
		sandboxes: map[string]*store.Sandbox{}, machines: map[string]*machine{},
	}
	w.open()
	t.Cleanup(func() { w.db.Close() })
	return w
}

func (w *world) open() {
	w.t.Helper()
	var err error
	if w.db, err = sqlite.Open(w.t.Context(), w.path); err != nil {
		w.t.Fatal(err)
	}
	w.disk = &disk{Usage: w.db}
	w.Meter, err = metering.New(w.t.Context(), metering.Options{
		Store: w.disk, Clock: w.clock, Rates: w.rates,
		Sandbox: func(_ context.Context, id string) (*store.Sandbox, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if sb := w.sandboxes[id]; sb != nil {
				c := *sb
				return &c, nil
			}
			return nil, bothy.Errorf(bothy.CodeSandboxNotFound, "there is no sandbox %q", id)
		},
		Snapshots: func(context.Context) ([]*bothy.Snapshot, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return append([]*bothy.Snapshot{}, w.snapshots...), nil
		},
		Templates: func(context.Context) ([]*store.Template, error) { return w.templates, nil },
		Project: func(_ context.Context, id string) error {
			if id == "nobody" {
				return bothy.Errorf(bothy.CodeProjectNotFound, "there is no project %q", id)
			}
			return nil
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.Serve(w)
}

// crash loses the state in memory.
func (w *world) crash() {
	w.t.Helper()
	if err := w.db.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.open()
}

// tick lets the meter work.
func (w *world) tick() { w.Tick(w.t.Context()) }

// passing advances the clock, with a tick every second.
func (w *world) passing(d time.Duration) {
	for ; d >= time.Second; d -= time.Second {
		w.clock.pass(time.Second)
		w.tick()
	}
	w.clock.pass(d)
}

// start starts a sandbox of one vCPU and 100 MB.
func (w *world) start(id string, change ...func(*store.Sandbox)) *machine {
	now := w.clock.Now().Wall
	sb := &store.Sandbox{Sandbox: bothy.Sandbox{ID: id, ProjectID: "p", Template: "t", CPU: 1, MemoryMB: 100, StartedAt: &now}}
	for _, c := range change {
		c(sb)
	}
	m := &machine{}
	w.mu.Lock()
	w.sandboxes[id], w.machines[id] = sb, m
	w.mu.Unlock()
	sb.MeterState = w.Starting(w.t.Context(), sb, m.read)
	w.Started(w.t.Context(), sb, m.read, false)
	return m
}

func (w *world) adopt(id string) {
	w.Started(w.t.Context(), w.sandboxes[id], w.machines[id].read, true)
}

func (w *world) stop(id string) { w.Stopped(w.t.Context(), id) }

func (w *world) operator() context.Context {
	return bothy.WithCaller(w.t.Context(), &bothy.Caller{ProjectID: bothy.DefaultProject, Scopes: bothy.AllScopes})
}

// report returns all usage ever recorded.
func (w *world) report(by ...string) *bothy.UsageReport {
	w.t.Helper()
	now := w.clock.Now().Wall
	r, err := w.Usage(w.operator(), bothy.UsageQuery{From: now.AddDate(0, -3, 0), To: now.AddDate(0, 3, 0), GroupBy: by})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) total() bothy.Usage {
	w.t.Helper()
	return w.report(bothy.UsageByDay).Total
}

func (w *world) wantVCPU(what string, want float64) {
	w.t.Helper()
	if got := w.total().VCPUSeconds; got != want {
		w.t.Errorf("%s: %v vCPU-seconds, want %v", what, got, want)
	}
}

// PauseOverBudget implements metering.Host.
func (w *world) PauseOverBudget(_ context.Context, project, root string) {
	select {
	case w.paused <- project + "/" + root:
	default:
	}
}

// EmitEvent implements metering.Host.
func (w *world) EmitEvent(_ context.Context, typ, project, sandbox string, data map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, bothy.Event{Type: typ, ProjectID: project, SandboxID: sandbox, Data: data})
}

func (w *world) events() (types []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.told {
		types = append(types, e.Type)
	}
	return types
}
