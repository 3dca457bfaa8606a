package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy/lifecycle/warm"

	"github.com/bothy-dev/bothy"
	blobdir "github.com/bothy-dev/bothy/blob/dir"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// shelf is a library of templates that can be removed.
type shelf struct {
	image string
	mu    sync.Mutex
	gone  map[string]bool
	warm  []string
	// memory is the memory snapshots of templates with processes.
	memory map[string]*bothy.TemplateMemory
}

func (s *shelf) LookupFor(_ context.Context, _, name string) (*store.Template, error) {
	return s.Lookup(name)
}

func (s *shelf) Lookup(name string) (*store.Template, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest := name
	if len(name) < 7 || name[:7] != "sha256:" {
		digest = "sha256:" + name
	}
	if s.gone[digest] {
		return nil, bothy.Errorf(bothy.CodeTemplateNotFound, "there is no template %q", name)
	}
	return &store.Template{Template: bothy.Template{Name: digest[7:], Digest: digest, Warm: s.warm, Memory: s.memory[digest[7:]]}, RootFS: s.image}, nil
}

func (s *shelf) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone["sha256:"+name] = true
}

// keep gives a template a memory snapshot of a sandbox.
func (s *shelf) keep(w *world, name string, sb *bothy.Sandbox) *bothy.Snapshot {
	w.t.Helper()
	n, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{})
	if err != nil {
		w.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory = map[string]*bothy.TemplateMemory{name: {
		SnapshotID: n.ID, BaseDigest: w.row(sb.ID).TemplateDigest, Engine: sb.Engine, CPU: sb.CPU, MemoryMB: sb.MemoryMB, DiskMB: sb.DiskMB,
	}}
	return n
}

// newPoolWorld is a world with a running pool.
func newPoolWorld(t *testing.T, pool warm.Options, more ...func(*world)) *world {
	t.Helper()
	w := newWorld(t)
	w.closeServer()
	w.pool = pool
	w.templates = &shelf{image: w.image, gone: map[string]bool{}}
	for _, f := range more {
		f(w)
	}
	w.open()
	w.StartPool()
	return w
}

func (w *world) hasReady(n int) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%d are ready", n), func() bool { return w.Pool(w.t.Context()).Ready == n })
}

// waiting returns the machine that has no owner.
func (w *world) waiting() string {
	w.t.Helper()
	for _, id := range w.host.IDs() {
		if w.stored(id) == "" {
			return id
		}
	}
	w.t.Fatal("there is no ready machine")
	return ""
}

func small(template string) bothy.SandboxCreate { return bothy.SandboxCreate{Template: template} }

// ofItsOwn is a request that no ready machine can serve.
func ofItsOwn(template string) bothy.SandboxCreate {
	return bothy.SandboxCreate{Template: template, Env: map[string]string{"K": "v"}}
}

func TestPoolAssignsReadyMachines(t *testing.T) {
	var first atomic.Bool
	w := newPoolWorld(t, warm.Options{Ready: 1, ReadyMax: 2, Templates: []string{"a"}})
	w.hasReady(1)
	before := w.host.IDs()
	if len(before) != 1 {
		t.Fatalf("machines are %v", before)
	}
	member, gw := w.guests.last(), w.gateways.last()
	waiting := member.identity()
	if gw.policy.Mode != bothy.NetworkOff {
		t.Errorf("the network of a ready machine is %q", gw.policy.Mode)
	}
	w.guests.onAdopt = func(_ context.Context, id bothy.Identity) error {
		gw.mu.Lock()
		defer gw.mu.Unlock()
		if id.SandboxID == before[0] && first.CompareAndSwap(false, true) && gw.policy.Mode != bothy.NetworkOpen {
			t.Errorf("adopted while the policy was %q", gw.policy.Mode)
		}
		return nil
	}
	sb := w.create(bothy.SandboxCreate{
		Template: "a", Name: "Mine", Env: map[string]string{"K": "v"}, Network: &bothy.Network{Mode: bothy.NetworkOpen}, CPU: 0.5,
		Secrets: []bothy.Secret{{Name: "TOKEN", Value: "very secret", Hosts: []string{"api.example.org"}}},
	})
	if sb.ID != before[0] || sb.State != bothy.StateRunning {
		t.Fatalf("got %s (%s), want the ready machine %s", sb.ID, sb.State, before[0])
	}
	id := member.identity()
	if id.SandboxID != sb.ID {
		t.Errorf("the machine's sandbox is %q", id.SandboxID)
	}
	if id.Key == waiting.Key || id.Key == "" || id.Hostname != "mine" || id.Env["K"] != "v" || slices.Equal(id.Entropy, waiting.Entropy) {
		t.Errorf("the machine's identity is %+v, and was %+v", id, waiting)
	}
	if l := w.machine(sb.ID).Limits(); l.CPU != 0.5 {
		t.Errorf("it may use %v CPUs", l.CPU)
	}
	if len(gw.secrets) != 1 {
		t.Errorf("the gateway has %d secrets", len(gw.secrets))
	}
	if got := w.row(sb.ID); got.GuestKey != id.Key || got.ProjectID != "mine" {
		t.Errorf("the stored row is %+v", got)
	}
	w.hasReady(1)
	limits, err := w.Limits(w.me())
	if err != nil || limits.Sandboxes.Used != 1 {
		t.Errorf("the pool counts against limits: %+v, %v", limits, err)
	}
	page, err := w.List(w.me(), bothy.SandboxFilter{})
	if err != nil || len(page.Items) != 1 {
		t.Errorf("the pool's machines are listed: %d, %v", len(page.Items), err)
	}
	if n := w.Live(); n != 1 {
		t.Errorf("%d are live", n)
	}
}

func TestClaimTellsTheGuestOnlyWhatIsNew(t *testing.T) {
	for name, c := range map[string]struct {
		change       func(*bothy.SandboxCreate)
		acceleration bothy.Acceleration
		told         int
	}{
		"nothing": {},
		"only the server's": {change: func(r *bothy.SandboxCreate) {
			r.CPU, r.TimeoutSeconds, r.Metadata = 0.5, new(60), map[string]string{"a": "b"}
		}},
		"its environment": {change: func(r *bothy.SandboxCreate) { r.Env = map[string]string{"K": "v"} }, told: 1},
		"its name":        {change: func(r *bothy.SandboxCreate) { r.Name = "mine" }, told: 1},
		"a secret": {change: func(r *bothy.SandboxCreate) {
			r.Secrets = []bothy.Secret{{Name: "T", Value: "secret", Hosts: []string{"api.example.org"}}}
			r.Network = &bothy.Network{Mode: bothy.NetworkOpen}
		}, told: 1},
		"the time, a machine": {acceleration: bothy.AccelerationKVM, told: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPoolWorld(t, warm.Options{Ready: 1, ReadyMax: 1, Templates: []string{"a"}}, func(w *world) { w.acceleration = c.acceleration })
			w.hasReady(1)
			id, member := w.host.IDs()[0], w.guests.last()
			var told atomic.Int32
			w.guests.mu.Lock()
			w.guests.onAdopt = func(_ context.Context, i bothy.Identity) error {
				if i.SandboxID == id {
					told.Add(1)
				}
				return nil
			}
			w.guests.mu.Unlock()
			req := small("a")
			if c.change != nil {
				c.change(&req)
			}
			sb := w.create(req)
			if sb.ID != id || int(told.Load()) != c.told {
				t.Errorf("the guest of %s was adopted %d times when %s was assigned, want %d", id, told.Load(), sb.ID, c.told)
			}
			who := member.identity()
			if who.SandboxID != id || who.Key == "" || w.row(id).GuestKey != who.Key {
				t.Errorf("the guest's identity is %+v, but the stored key is %q", who, w.row(id).GuestKey)
			}
		})
	}
}

func TestPoolFollowsDemand(t *testing.T) {
	w := newPoolWorld(t, warm.Options{ReadyMax: 3})
	if n := w.Pool(t.Context()).Ready; n != 0 {
		t.Fatalf("%d are ready without any request", n)
	}
	// Another size has its own machines.
	big := bothy.SandboxCreate{Template: "a", MemoryMB: 2048}
	w.create(big)
	w.clock.pass(2 * time.Second)
	w.create(big)
	w.hasReady(1)
	ready := w.host.IDs()
	if sb := w.create(big); !slices.Contains(ready, sb.ID) {
		t.Errorf("the second sandbox of the size was not a ready machine")
	}
	w.clock.pass(2 * time.Minute)
	w.create(small("a"))
	// Three were requested at once, which is the limit.
	for range 2 {
		w.create(small("a"))
	}
	w.hasReady(3)
	w.clock.pass(time.Hour)
	w.hasReady(0)
}

func TestPoolAssignsEachMachineOnce(t *testing.T) {
	w := newPoolWorld(t, warm.Options{Ready: 3, ReadyMax: 3, Templates: []string{"a"}})
	w.hasReady(3)
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			sb, err := w.Create(as(t, fmt.Sprint("project", i%3)), small("a"))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if seen[sb.ID] {
				t.Errorf("%s was assigned twice", sb.ID)
			}
			seen[sb.ID] = true
		})
	}
	wg.Wait()
}

func TestPoolForgetsARemovedTemplate(t *testing.T) {
	w := newPoolWorld(t, warm.Options{Ready: 2, ReadyMax: 4, Templates: []string{"a", "b"}})
	w.hasReady(4)
	w.templates.(*shelf).remove("a")
	_, err := w.Create(w.me(), small("a"))
	wantCode(t, err, bothy.CodeTemplateNotFound)
	w.create(small("b")) // the pool updates itself
	eventually(t, "the machines of a are gone", func() bool {
		return w.Pool(t.Context()).Ready == 2 && len(w.host.IDs()) == 3
	})
}

func TestPoolShrinksWhenMemoryIsShort(t *testing.T) {
	var free atomic.Int64
	free.Store(10_000)
	w := newPoolWorld(t, warm.Options{Ready: 2, ReadyMax: 2, Spares: 2, Templates: []string{"a"}, MinFreeMemoryMB: 1000},
		func(w *world) { w.free = func() int { return int(free.Load()) } })
	eventually(t, "all is there", func() bool { p := w.Pool(t.Context()); return p.Ready == 2 && p.Spares == 2 })
	free.Store(500)
	w.create(small("a")) // assigns a ready machine
	eventually(t, "all is given up", func() bool { p := w.Pool(t.Context()); return p.Ready == 0 && p.Spares == 0 })
	if ids := w.host.IDs(); len(ids) != 1 {
		t.Errorf("the machines are %v", ids)
	}
	free.Store(10_000)
	w.create(small("a"))
	eventually(t, "all is there again", func() bool { p := w.Pool(t.Context()); return p.Ready == 2 && p.Spares == 2 })
}

func TestPoolStopsBeforeMemoryRunsOut(t *testing.T) {
	var looks, starts atomic.Int64
	w := newPoolWorld(t, warm.Options{Ready: 100, ReadyMax: 100, Spares: 100, Templates: []string{"a"}, MinFreeMemoryMB: 1000},
		func(w *world) {
			w.free = func() int { looks.Add(1); return 1500 - 100*len(w.host.IDs()) }
			w.host.FailStart = func(string) error { starts.Add(1); return nil }
		})
	w.hasReady(4) // with the fifth, there would be no room for a sixth
	for n := looks.Load(); looks.Load() < n+20; time.Sleep(time.Millisecond) {
		w.clock.pass(10 * time.Second)
	}
	if n := len(w.host.IDs()); n != 4 || starts.Load() != 4 {
		t.Errorf("there are %d machines after %d starts, want 4 of each", n, starts.Load())
	}
}

func TestPoolMakesRoomForRequests(t *testing.T) {
	w := newPoolWorld(t, warm.Options{Ready: 2, ReadyMax: 2, Templates: []string{"a"}}, func(x *world) {
		// Each machine takes 100 MB of 350, of which 200 are the host's own.
		x.free = func() int { return 350 - 100*len(x.host.IDs()) }
		x.minFree = 200
	})
	w.hasReady(1)
	if sb := w.create(bothy.SandboxCreate{Template: "b"}); sb.State != bothy.StateRunning {
		t.Errorf("it is %s", sb.State)
	}
}

func TestClaimThatIsCancelled(t *testing.T) {
	w := newPoolWorld(t, warm.Options{Ready: 1, ReadyMax: 1, Templates: []string{"a"}})
	w.hasReady(1)
	id := w.host.IDs()[0]
	ctx, cancel := context.WithCancel(w.me())
	w.guests.mu.Lock()
	w.guests.onAdopt = func(actx context.Context, i bothy.Identity) error {
		if i.SandboxID != id {
			return nil
		}
		cancel() // the caller leaves during the claim
		<-actx.Done()
		return actx.Err()
	}
	w.guests.mu.Unlock()
	if _, err := w.Create(ctx, ofItsOwn("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if sb := w.get(id); sb.State != bothy.StateFailed {
		t.Errorf("the sandbox is %s", sb.State)
	}
	if slices.Contains(w.host.IDs(), id) {
		t.Error("its machine is still running")
	}
	w.hasReady(1)
}

// stored returns the stored state of a sandbox, or "".
func (w *world) stored(id string) bothy.State {
	sb, err := w.store.Sandbox(context.Background(), id)
	if err != nil {
		return ""
	}
	return sb.State
}

func TestClaimIsStoredWhenItRuns(t *testing.T) {
	w := newPoolWorld(t, warm.Options{Ready: 1, ReadyMax: 1, Templates: []string{"a"}})
	w.hasReady(1)
	id := w.host.IDs()[0]
	stop := failpoint.Set("lifecycle.adopted", func() error {
		if state := w.stored(id); state != "" {
			t.Errorf("during the assignment it is stored as %s", state)
		}
		return nil
	})
	sb := w.create(small("a"))
	stop()
	if sb.ID != id || w.stored(id) != bothy.StateRunning {
		t.Errorf("%s was assigned, want %s; it is stored as %q", sb.ID, id, w.stored(id))
	}
}

func TestServerThatDiesBeforeAClaimIsStoredLeavesNothing(t *testing.T) {
	w := newPoolWorld(t, warm.Options{Ready: 1, ReadyMax: 1, Templates: []string{"a"}})
	w.hasReady(1)
	id, killed := w.host.IDs()[0], w.Service
	ctx, die := context.WithCancel(w.me())
	reached, over := make(chan struct{}), make(chan struct{})
	t.Cleanup(failpoint.Set("lifecycle.adopted", func() error {
		close(reached)
		<-over
		return errors.New("the server died")
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		killed.Create(ctx, small("a"))
	}()
	<-reached
	old := w.store
	defer func() { die(); close(over); <-done; killed.Close(); old.Close() }()
	w.pool = warm.Options{}
	w.open()
	if _, err := w.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(w.host.IDs(), id) {
		t.Error("its machine is still running")
	}
	if p, err := w.List(w.me(), bothy.SandboxFilter{}); err != nil || len(p.Items) != 0 {
		t.Errorf("the list has %+v, %v", p.Items, err)
	}
}

func TestClaimChangesOnlyLimitsThatDiffer(t *testing.T) {
	var mu sync.Mutex
	told := map[string][]float64{}
	var fail bool
	w := newPoolWorld(t, warm.Options{Ready: 1, ReadyMax: 1, Templates: []string{"a"}}, func(w *world) {
		w.host.Limiting = func(id string, l bothy.Limits) error {
			mu.Lock()
			defer mu.Unlock()
			if fail && l.CPU == 0.5 {
				fail = false
				return errors.New("there is no such cgroup")
			}
			told[id] = append(told[id], l.CPU)
			return nil
		}
	})
	for _, c := range []struct {
		cpu  float64
		want []float64
	}{{0, []float64{1}}, {0.5, []float64{1, 0.5}}} {
		w.hasReady(1)
		sb := w.create(bothy.SandboxCreate{Template: "a", CPU: c.cpu})
		mu.Lock()
		if got := told[sb.ID]; !slices.Equal(got, c.want) {
			t.Errorf("with %v CPUs the machine's limits were set to %v, want %v", c.cpu, got, c.want)
		}
		mu.Unlock()
		if got := w.machine(sb.ID).Limits().CPU; got != c.want[len(c.want)-1] {
			t.Errorf("it may use %v CPUs", got)
		}
	}
	w.hasReady(1)
	mu.Lock()
	fail = true
	mu.Unlock()
	waited := w.machine(w.pooled()[0])
	sb := w.create(bothy.SandboxCreate{Template: "a", CPU: 0.5})
	select {
	case <-waited.Done():
	default:
		t.Error("a machine whose limits could not be set is still running")
	}
	if got := w.machine(sb.ID).Limits().CPU; got != 0.5 {
		t.Errorf("it may use %v CPUs", got)
	}
}

// pooled lists the machines without an owner.
func (w *world) pooled() []string {
	return slices.DeleteFunc(w.host.IDs(), func(id string) bool { return w.stored(id) != "" })
}

func TestPoolKeepsTheProcessesOfATemplate(t *testing.T) {
	w := newPoolWorld(t, warm.Options{ReadyMax: 1})
	shelf := w.templates.(*shelf)
	n := shelf.keep(w, "server", w.create(bothy.SandboxCreate{Template: "a", CPU: 0.5, MemoryMB: 256}))
	for range 2 {
		w.create(small("server"))
	}
	w.hasReady(1)
	waiting := w.waiting()
	if sb := w.create(small("a")); sb.ID == waiting || sb.Resumed != nil {
		t.Errorf("a files-only sandbox is %s, which was resumed from %+v", sb.ID, sb.Resumed)
	}
	sb := w.create(bothy.SandboxCreate{Template: "server", Env: map[string]string{"K": "v"}})
	if sb.ID != waiting || w.row(sb.ID).TemplateDigest != "sha256:a" || sb.CPU != 0.5 {
		t.Errorf("got %s of %s with %v CPU, want the ready machine %s", sb.ID, w.row(sb.ID).TemplateDigest, sb.CPU, waiting)
	}
	if r := w.get(sb.ID).Resumed; r == nil || r.SnapshotID != n.ID || r.Kind != bothy.SnapshotMemory {
		t.Errorf("it was resumed from %+v, want %s", r, n.ID)
	}
	w.hasReady(1)
	var once atomic.Bool
	w.guests.mu.Lock()
	w.guests.onAdopt = func(context.Context, bothy.Identity) error {
		if once.CompareAndSwap(false, true) {
			return errors.New("the guest has been damaged")
		}
		return nil
	}
	w.guests.mu.Unlock()
	sb = w.create(bothy.SandboxCreate{Template: "server", Env: map[string]string{"K": "v"}})
	if r := w.get(sb.ID).Resumed; r == nil || r.SnapshotID != n.ID {
		t.Errorf("the replacement of a damaged machine was resumed from %+v", r)
	}
	w.hasReady(1)
	if err := w.DeleteSnapshot(w.me(), n.ID); err != nil {
		t.Fatal(err)
	}
	w.hasReady(0)
}

func TestPoolRestoresTheProcessesOfANamedTemplate(t *testing.T) {
	w := newPoolWorld(t, warm.Options{Ready: 1, ReadyMax: 1, Templates: []string{"server"}}, func(w *world) {
		w.templates.(*shelf).gone["sha256:server"] = true
	})
	shelf := w.templates.(*shelf)
	shelf.keep(w, "server", w.create(small("a")))
	shelf.mu.Lock()
	delete(shelf.gone, "sha256:server")
	shelf.mu.Unlock()
	w.clock.pass(time.Minute)
	w.hasReady(1)
	waiting := w.waiting()
	if sb := w.create(small("server")); sb.ID != waiting {
		t.Errorf("got %s, want the ready machine %s", sb.ID, waiting)
	}
}

func TestMachineThatCannotBeAssignedIsReplaced(t *testing.T) {
	var damaged atomic.Value // the id of the sandbox
	w := newPoolWorld(t, warm.Options{Ready: 1, ReadyMax: 1, Templates: []string{"a"}}, func(w *world) {
		w.host.FailStart = func(id string) error {
			if state := w.stored(id); id == damaged.Load() && state != bothy.StateStarting {
				t.Errorf("while another is started it is stored as %q", state)
			}
			return nil
		}
	})
	w.hasReady(1)
	id := w.host.IDs()[0]
	var once atomic.Bool
	w.guests.mu.Lock()
	w.guests.onAdopt = func(_ context.Context, i bothy.Identity) error {
		if i.SandboxID == id && once.CompareAndSwap(false, true) {
			damaged.Store(id)
			return errors.New("the guest has been damaged")
		}
		return nil
	}
	w.guests.mu.Unlock()
	first := w.machine(id)
	if sb := w.create(ofItsOwn("a")); sb.State != bothy.StateRunning {
		t.Errorf("it is %s", sb.State)
	}
	select {
	case <-first.Done():
	default:
		t.Error("the machine that was not adopted is still running")
	}
}

func TestADeadReadyMachineIsNotAssigned(t *testing.T) {
	w := newPoolWorld(t, warm.Options{Ready: 1, ReadyMax: 1, Templates: []string{"a"}})
	w.hasReady(1)
	id := w.host.IDs()[0]
	w.machine(id).End(bothy.Exit{Reason: bothy.EndOutOfMemory})
	if sb := w.create(small("a")); sb.ID == id || sb.State != bothy.StateRunning {
		t.Errorf("got %s, %s", sb.ID, sb.State)
	}
}

func TestPoolEndsWithTheServer(t *testing.T) {
	w := newPoolWorld(t, warm.Options{Ready: 2, ReadyMax: 2, Spares: 1, Templates: []string{"a"}})
	w.hasReady(2)
	sb := w.create(small("a"))
	w.restart()
	if ids := w.host.IDs(); len(ids) != 1 || ids[0] != sb.ID {
		t.Errorf("the machines are %v, want only that of the sandbox %s", ids, sb.ID)
	}
}

func TestNextServerRemovesThePoolOfAKilledOne(t *testing.T) {
	w := newPoolWorld(t, warm.Options{Ready: 2, ReadyMax: 2, Spares: 1, Templates: []string{"a"}})
	eventually(t, "all is there", func() bool { p := w.Pool(t.Context()); return p.Ready == 2 && p.Spares == 1 })
	old := w.host.IDs()
	killed := w.Service
	w.pool = warm.Options{}
	w.open() // the killed server does nothing more
	if _, err := w.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range old {
		if slices.Contains(w.host.IDs(), id) {
			t.Errorf("%s is left", id)
		}
	}
	killed.Close()
}

func TestSandboxesAreRestoredFromGoldenSnapshots(t *testing.T) {
	w := newGoldenWorld(t)
	sb := w.create(small("a"))
	if from := w.machine(sb.ID).RestoredFrom(); from != "" {
		t.Errorf("the first was restored from %s", from)
	}
	w.create(small("a"))
	w.hasGolden(1)
	sb = w.create(small("a"))
	if w.machine(sb.ID).RestoredFrom() == "" {
		t.Error("the second was booted")
	}
	// Another size cannot use the snapshot, and gets its own.
	sb = w.create(bothy.SandboxCreate{Template: "a", MemoryMB: 1024})
	if w.machine(sb.ID).RestoredFrom() != "" {
		t.Error("another size was restored from it")
	}
	w.create(bothy.SandboxCreate{Template: "a", MemoryMB: 1024})
	w.hasGolden(2)
	// Another share of the same number of processors can use it.
	sb = w.create(bothy.SandboxCreate{Template: "a", CPU: 0.3})
	if w.machine(sb.ID).RestoredFrom() == "" {
		t.Error("another share of CPU was booted")
	}
	// The next server finds the snapshots.
	w.restart()
	w.StartPool()
	w.hasGolden(2)
	sb = w.create(small("a"))
	if w.machine(sb.ID).RestoredFrom() == "" {
		t.Error("after a restart it was booted")
	}
}

// Many concurrent requests are booted, which is less work than a golden snapshot, unless people run code
// in the template.
func TestManyRequestsAreBootedUnlessTheyRunCode(t *testing.T) {
	w := newGoldenWorld(t)
	w.create(small("a"))
	first := w.create(small("a"))
	w.hasGolden(1)
	crowd := func() (booted int) {
		open := make(chan struct{})
		var waiting atomic.Int64
		w.host.FailStart = func(string) error {
			waiting.Add(1)
			<-open
			return nil
		}
		ids := make(chan string, 4)
		for i := range cap(ids) {
			go func() {
				sb, err := w.Create(w.me(), small("a"))
				if err != nil {
					t.Error(err)
					ids <- ""
					return
				}
				ids <- sb.ID
			}()
			eventually(t, "it starts", func() bool { return waiting.Load() == int64(i+1) })
		}
		close(open)
		for range cap(ids) {
			if id := <-ids; id != "" && w.machine(id).RestoredFrom() == "" {
				booted++
			}
		}
		return booted
	}
	if n := crowd(); n != 2 {
		t.Errorf("%d of 4 were booted, want 2", n)
	}
	w.RunCode(w.me(), first.ID, bothy.CodeRequest{Code: "1"}) // this guest cannot run code, but the request counts
	if n := crowd(); n != 0 {
		t.Errorf("%d were booted although users run code", n)
	}
}

func TestBrokenGoldenSnapshots(t *testing.T) {
	for name, damage := range map[string]func(*world){
		"changed":  func(w *world) { w.writeGolden("memory/state.json", "{}") },
		"damaged":  func(w *world) { w.writeGolden("memory/state.json", "not JSON") },
		"not read": func(w *world) { w.removeGolden("memory/state.json") },
		"deleted":  func(w *world) { w.removeGolden("") },
		"its guest is not adopted": func(w *world) {
			w.guests.mu.Lock()
			defer w.guests.mu.Unlock()
			w.guests.onAdopt = func(_ context.Context, id bothy.Identity) error {
				if id.SandboxID != "" && w.machine(id.SandboxID).RestoredFrom() != "" {
					return errors.New("the guest does not answer")
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGoldenWorld(t)
			w.create(small("a"))
			w.create(small("a"))
			w.hasGolden(1)
			damage(w)
			sb := w.create(small("a"))
			if w.machine(sb.ID).RestoredFrom() != "" {
				t.Error("the broken snapshot was restored")
			}
			if n := w.Pool(t.Context()).Golden; n != 0 {
				t.Errorf("%d snapshots are still in use", n)
			}
			w.clock.pass(time.Hour)
			w.guests.mu.Lock()
			w.guests.onAdopt = nil
			w.guests.mu.Unlock()
			w.create(small("a"))
			w.create(small("a"))
			w.hasGolden(1)
		})
	}
}

// Templates whose digests have a common prefix are distinct.
func TestGoldenSnapshotsOfSimilarDigests(t *testing.T) {
	w := newGoldenWorld(t)
	seen := map[string]bool{}
	for i, name := range []string{"0123456789ab-one", "0123456789ab-two"} {
		w.create(small(name))
		w.create(small(name))
		w.hasGolden(i + 1)
		sb := w.create(small(name))
		from := w.machine(sb.ID).RestoredFrom()
		m, err := snapshot.Read(filepath.Dir(from))
		if err != nil || m.Sandbox.TemplateDigest != "sha256:"+name || seen[from] {
			t.Errorf("%s was restored from %s, whose manifest is %+v, %v", name, from, m, err)
		}
		seen[from] = true
	}
	// A golden snapshot under the name of another is not used.
	names := w.goldenNames()
	w.closeServer()
	for _, move := range [][2]string{{names[0], "aside"}, {names[1], names[0]}, {"aside", names[1]}} {
		if err := os.Rename(filepath.Join(w.goldenDir(), move[0]), filepath.Join(w.goldenDir(), move[1])); err != nil {
			t.Fatal(err)
		}
	}
	w.open()
	w.StartPool()
	eventually(t, "they are deleted", func() bool { return len(w.goldenNames()) == 0 })
}

func TestUnusedGoldenSnapshotsAreDeleted(t *testing.T) {
	t.Run("of another build", func(t *testing.T) {
		w := newGoldenWorld(t)
		w.create(small("a"))
		w.create(small("a"))
		w.hasGolden(1)
		w.build = "build-2"
		w.restart()
		w.StartPool()
		eventually(t, "it is deleted", func() bool { return len(w.goldenNames()) == 0 })
	})
	t.Run("with other certificates", func(t *testing.T) {
		w := newGoldenWorld(t)
		w.create(small("a"))
		w.create(small("a"))
		w.hasGolden(1)
		w.closeServer()
		var log bytes.Buffer // read only after the server is closed
		w.log = slog.New(slog.NewTextHandler(&log, nil))
		change := w.change
		w.change = func(o *lifecycle.Options) {
			if change != nil {
				change(o)
			}
			o.CABundle = "another"
		}
		w.open()
		w.StartPool()
		eventually(t, "it is deleted", func() bool { return len(w.goldenNames()) == 0 })
		w.closeServer()
		if got := log.String(); !strings.Contains(got, "trusted certificates have changed") || strings.Contains(got, "another build") {
			t.Errorf("the log says %s", got)
		}
		w.open()
	})
	t.Run("of a removed template", func(t *testing.T) {
		w := newGoldenWorld(t)
		w.create(small("a"))
		w.create(small("a"))
		w.hasGolden(1)
		w.templates.(*shelf).remove("a")
		w.restart()
		w.StartPool()
		eventually(t, "it is deleted", func() bool { return len(w.goldenNames()) == 0 })
	})
	t.Run("too many", func(t *testing.T) {
		w := newGoldenWorld(t)
		for _, name := range []string{"a", "b", "c", "d"} {
			before := w.goldenNames()
			w.create(small(name))
			w.create(small(name))
			w.clock.pass(time.Second)
			eventually(t, "it is made", func() bool { return !slices.Equal(w.goldenNames(), before) })
		}
		eventually(t, "three are left", func() bool { return len(w.goldenNames()) == 3 })
		sb := w.create(small("d"))
		if w.machine(sb.ID).RestoredFrom() == "" {
			t.Error("the latest was deleted")
		}
	})
}

// newGoldenWorld is a world with golden snapshots and no ready machines.
func newGoldenWorld(t *testing.T) *world {
	t.Helper()
	return newPoolWorld(t, warm.Options{}, func(w *world) {
		w.templates.(*shelf).warm = []string{"python"}
		store, err := blobdir.Open(w.goldenDir())
		if err != nil {
			t.Fatal(err)
		}
		w.pool = warm.Options{Golden: store, GoldenMax: 3}
	})
}

func (w *world) hasGolden(n int) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%d golden snapshots", n), func() bool { return w.Pool(w.t.Context()).Golden == n })
}

func (w *world) goldenDir() string { return filepath.Join(w.dir, "golden") }

func (w *world) goldenNames() []string {
	w.t.Helper()
	names, err := w.pool.Golden.List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return names
}

// golden returns the path of a file of the only golden snapshot.
func (w *world) golden(part string) string {
	w.t.Helper()
	names := w.goldenNames()
	if len(names) != 1 {
		w.t.Fatalf("golden snapshots are %v", names)
	}
	return filepath.Join(w.goldenDir(), names[0], part)
}

func (w *world) writeGolden(part, text string) {
	w.t.Helper()
	if err := os.WriteFile(w.golden(part), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) removeGolden(part string) {
	w.t.Helper()
	if err := os.RemoveAll(w.golden(part)); err != nil {
		w.t.Fatal(err)
	}
}
