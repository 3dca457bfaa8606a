// Package enginetest is the suite of tests that every engine passes. An
// engine's own test is a few lines: it says how to make one, and calls Run.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/gateway"
)

// Harness is how the suite makes engines and machines.
type Harness struct {
	// New returns an engine that keeps its state in dir. Engines with the same
	// dir find each other's machines. The suite closes engines that have Close.
	New func(t *testing.T, dir string) bothy.Engine
	// RootFS and Guest are the images that machines start from.
	RootFS, Guest string
	// Patience is how long a guest may need for its first answer.
	Patience time.Duration
	// Parallel runs the tests beside one another, where a machine is busy with one processor for long.
	Parallel bool
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	for name, test := range map[string]func(*testing.T, *suite){
		"Guest answers over the network device":                      guestAnswers,
		"A guest that is announced answers":                          announced,
		"Every machine has a user of its own":                        users,
		"Two machines with the same address do not mix":              twoMachines,
		"A network device can be opened again":                       netDeviceAgain,
		"Destroy ends a machine and can be repeated":                 destroyTwice,
		"An id is used once":                                         sameID,
		"A machine starts while the one that it replaces still runs": concurrent,
		"A start that fails leaves nothing":                          failedStart,
		"A start that is given up leaves nothing":                    cancelledStart,
		"A machine outlives its engine and is adopted":               adopted,
		"A machine that is gone is not adopted":                      adoptGone,
		"Sweep removes what is not kept and nothing else":            sweep,
		"Many start and end at once":                                 manyAtOnce,
		"Limits can be changed and use is told":                      limits,
		"A frozen machine does not run":                              frozen,
		"A live snapshot runs on and wakes as a copy":                liveSnapshot,
		"A last snapshot wakes where it stopped":                     lastSnapshot,
		"A stopped machine can go on":                                stopAndGoOn,
		"Files alone start a machine":                                filesAlone,
		"A damaged snapshot is refused":                              damagedSnapshot,
		"A spare is taken by a start of its kind":                    spareStarts,
		"A spare is taken by a restore":                              spareRestores,
		"A machine made from a spare is adopted":                     spareAdopted,
		"Spares are given up":                                        sparesGivenUp,
	} {
		t.Run(name, func(t *testing.T) {
			if h.Parallel {
				t.Parallel()
			}
			test(t, newSuite(t, h))
		})
	}
}

type suite struct {
	Harness
	dir string
	e   bothy.Engine

	mu      sync.Mutex
	started []bothy.Machine
}

func newSuite(t *testing.T, h Harness) *suite {
	if h.Patience == 0 {
		h.Patience = 10 * time.Second
	}
	s := &suite{Harness: h, dir: t.TempDir()}
	// Sentries run without rights to this folder, and must be able to pass through it.
	for d := s.dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		os.Chmod(d, 0o711)
	}
	s.e = s.engine(t)
	t.Cleanup(func() {
		for _, m := range s.started {
			destroy(t, m)
		}
		s.nothingLeft(t)
	})
	return s
}

// begin starts or restores a machine, which is ended with the test.
func (s *suite) begin(f func() (bothy.Machine, error)) (bothy.Machine, error) {
	m, err := f()
	if err == nil {
		s.mu.Lock()
		s.started = append(s.started, m)
		s.mu.Unlock()
	}
	return m, err
}

func (s *suite) engine(t *testing.T) bothy.Engine {
	e := s.New(t, s.dir)
	if c, ok := e.(interface{ Close() error }); ok {
		t.Cleanup(func() { c.Close() })
	}
	return e
}

func (s *suite) spec(id string) bothy.MachineSpec {
	return bothy.MachineSpec{
		ID: id, RootFS: s.RootFS, Guest: s.Guest, Hostname: id,
		Limits: bothy.Limits{CPU: 1, MemoryMB: 256, DiskMB: 128, Processes: 256},
	}
}

func (s *suite) start(t *testing.T, id string) bothy.Machine {
	t.Helper()
	m, err := s.begin(func() (bothy.Machine, error) { return s.e.Start(t.Context(), s.spec(id)) })
	if err != nil {
		t.Fatalf("start %s: %v", id, err)
	}
	return m
}

// plug opens the network device and puts a gateway on it.
func plug(t *testing.T, m bothy.Machine) *gateway.Gateway {
	t.Helper()
	c, err := m.NetDevice(t.Context())
	if err != nil {
		t.Fatalf("network device of %s: %v", m.ID(), err)
	}
	g, err := gateway.New(c, gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// answers dials the guest until it accepts.
func (s *suite) answers(t *testing.T, g *gateway.Gateway) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), s.Patience)
	defer cancel()
	for {
		c, err := g.Dial(ctx, bothy.GuestPort)
		if err == nil {
			c.Close()
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the guest did not answer within %v: %v", s.Patience, err)
		}
		time.Sleep(time.Millisecond)
	}
}

func guestAnswers(t *testing.T, s *suite) {
	m := s.start(t, "a")
	s.answers(t, plug(t, m))
	if m.ID() != "a" {
		t.Errorf("id is %q", m.ID())
	}
	if i := s.e.Info(); i.Name == "" || i.Build == "" || i.Kernel == "" {
		t.Errorf("engine says too little of itself: %+v", i)
	}
}

// announced starts guests that announce themselves, and asks each once.
func announced(t *testing.T, s *suite) {
	ask := func(m bothy.Machine) {
		t.Helper()
		a, ok := m.(bothy.Announcer)
		if !ok {
			t.Skip("not with this engine")
		}
		g := plug(t, m)
		begun := time.Now()
		a.Announced(t.Context())
		c, err := g.Dial(t.Context(), bothy.GuestPort)
		if err != nil {
			t.Fatalf("the guest was announced after %v, and then: %v", time.Since(begun), err)
		}
		c.Close()
		a.Announced(t.Context()) // it is no news any more
	}
	m := s.start(t, "a")
	ask(m)
	dir := s.snapshots(t)
	if err := m.Snapshot(t.Context(), bothy.SnapshotOptions{MemoryDir: dir}); err != nil {
		t.Fatal(err)
	}
	copied, err := s.begin(func() (bothy.Machine, error) { return s.e.Restore(t.Context(), s.spec("copy"), dir) })
	if err != nil {
		t.Fatal(err)
	}
	ask(copied)

	gone := s.start(t, "gone")
	if err := gone.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone.(bothy.Announcer).Announced(t.Context()) // no other call will come
}

func twoMachines(t *testing.T, s *suite) {
	a, b := s.start(t, "a"), s.start(t, "b")
	ga, gb := plug(t, a), plug(t, b)
	s.answers(t, ga)
	s.answers(t, gb)
	destroy(t, a)
	s.answers(t, gb)
}

func netDeviceAgain(t *testing.T, s *suite) {
	m := s.start(t, "a")
	for range 3 {
		g := plug(t, m)
		s.answers(t, g)
		g.Close()
	}
}

func destroy(t *testing.T, m bothy.Machine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := m.Destroy(ctx); err != nil {
		t.Fatalf("destroy %s: %v", m.ID(), err)
	}
}

func destroyTwice(t *testing.T, s *suite) {
	m := s.start(t, "a")
	select {
	case <-m.Done():
		t.Fatal("a new machine has ended")
	default:
	}
	destroy(t, m)
	destroy(t, m)
	select {
	case <-m.Done():
	default:
		t.Fatal("Destroy returned before the machine had ended")
	}
	if x := m.Exit(); x.Reason != bothy.EndTerminated || x.Detail == "" {
		t.Errorf("exit is %+v", x)
	}
	s.nothingLeft(t)
	// The id is free again.
	destroy(t, s.start(t, "a"))
}

// nothingLeft fails if the engine finds anything to remove.
func (s *suite) nothingLeft(t *testing.T) {
	t.Helper()
	ids, err := s.e.Sweep(context.Background(), func(string) bool { return false })
	if err != nil || len(ids) > 0 {
		t.Errorf("left behind: %v, %v", ids, err)
	}
}

func sameID(t *testing.T, s *suite) {
	m := s.start(t, "a")
	if _, err := s.e.Start(t.Context(), s.spec("a")); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("a second machine with the same id: %v", err)
	}
	s.answers(t, plug(t, m))
}

// concurrent starts a machine while another one with its id still lives.
func concurrent(t *testing.T, s *suite) {
	old := s.start(t, "a")
	spec := s.spec("a")
	spec.AllowConcurrent = true
	m, err := s.begin(func() (bothy.Machine, error) { return s.e.Start(t.Context(), spec) })
	if bothy.ErrorCode(err) == bothy.CodeConflict {
		t.Skip("not with this engine")
	}
	if err != nil {
		t.Fatal(err)
	}
	destroy(t, old)
	s.answers(t, plug(t, m))
	if _, err := s.e.Start(t.Context(), s.spec("a")); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("a second machine with the same id: %v", err)
	}
	destroy(t, m)
	destroy(t, s.start(t, "a")) // the id is free again
	s.nothingLeft(t)
}

func failedStart(t *testing.T, s *suite) {
	for name, damage := range map[string]func(*bothy.MachineSpec){
		"root image": func(m *bothy.MachineSpec) { m.RootFS = filepath.Join(s.dir, "none") },
		"guest":      func(m *bothy.MachineSpec) { m.Guest = filepath.Join(s.dir, "none") },
	} {
		spec := s.spec("a")
		damage(&spec)
		if _, err := s.e.Start(t.Context(), spec); bothy.ErrorCode(err) != bothy.CodeTemplateInvalid {
			t.Errorf("without the %s: %v", name, err)
		}
		s.nothingLeft(t)
	}
}

func cancelledStart(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.e.Start(ctx, s.spec("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("a start that was given up: %v", err)
	}
	s.nothingLeft(t)
}

func adopted(t *testing.T, s *suite) {
	m := s.start(t, "a")
	state := m.State()
	g := plug(t, m)
	s.answers(t, g)
	g.Close()
	// The server before may have frozen it.
	if err := m.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}

	next := s.engine(t)
	n, err := next.Adopt(t.Context(), "a", state)
	if err != nil {
		t.Fatal(err)
	}
	s.answers(t, plug(t, n))
	if _, err := n.Stats(t.Context()); err != nil {
		t.Errorf("stats of an adopted machine: %v", err)
	}
	destroy(t, n)
	select {
	case <-m.Done():
	case <-time.After(time.Minute):
		t.Error("the first engine does not see that the machine has ended")
	}
}

func adoptGone(t *testing.T, s *suite) {
	m := s.start(t, "a")
	state := m.State()
	destroy(t, m)
	if _, err := s.engine(t).Adopt(t.Context(), "a", state); bothy.ErrorCode(err) != bothy.CodeNotFound {
		t.Errorf("adopting a machine that is gone: %v", err)
	}
}

func sweep(t *testing.T, s *suite) {
	a, b := s.start(t, "a"), s.start(t, "b")
	state := a.State()
	plug(t, a).Close()
	// A new server knows neither until it adopts one.
	next := s.engine(t)
	kept, err := next.Adopt(t.Context(), "a", state)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := next.Sweep(t.Context(), func(id string) bool { return id == "a" })
	if err != nil || len(ids) != 1 || ids[0] != "b" {
		t.Errorf("swept %v, %v", ids, err)
	}
	select {
	case <-b.Done():
	case <-time.After(time.Minute):
		t.Error("the machine that is not kept still runs")
	}
	s.answers(t, plug(t, kept))
}

func manyAtOnce(t *testing.T, s *suite) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			id := fmt.Sprintf("m%d", i)
			m, err := s.e.Start(t.Context(), s.spec(id))
			if err != nil {
				t.Errorf("start %s: %v", id, err)
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			if err := m.Destroy(ctx); err != nil {
				t.Errorf("destroy %s: %v", id, err)
			}
		})
	}
	wg.Wait()
	s.nothingLeft(t)
}

func limits(t *testing.T, s *suite) {
	m := s.start(t, "a")
	l := s.spec("a").Limits
	l.CPU, l.MemoryMB = 2, 512
	if err := m.SetLimits(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	st, err := m.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if st.MemoryLimitBytes != 512<<20 || st.DiskLimitBytes != 128<<20 {
		t.Errorf("limits are told as %+v", st)
	}
}

func frozen(t *testing.T, s *suite) {
	m := s.start(t, "a")
	g := plug(t, m)
	s.answers(t, g)
	if err := m.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.answers(t, g)
	if err := m.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	destroy(t, m)
}

func (s *suite) snapshots(t *testing.T) string {
	t.Helper()
	if !s.e.Info().Snapshots {
		t.Skip("the engine takes no snapshots")
	}
	dir := filepath.Join(s.dir, "snapshot")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func liveSnapshot(t *testing.T, s *suite) {
	dir := s.snapshots(t)
	m := s.start(t, "a")
	g := plug(t, m)
	s.answers(t, g)
	if err := m.Snapshot(t.Context(), bothy.SnapshotOptions{MemoryDir: dir}); err != nil {
		t.Fatal(err)
	}
	s.answers(t, g)
	for i := range 2 {
		c, err := s.begin(func() (bothy.Machine, error) {
			return s.e.Restore(t.Context(), s.spec(fmt.Sprintf("copy%d", i)), dir)
		})
		if err != nil {
			t.Fatal(err)
		}
		s.answers(t, plug(t, c))
	}
	s.answers(t, g)
}

func lastSnapshot(t *testing.T, s *suite) {
	dir := s.snapshots(t)
	m := s.start(t, "a")
	s.answers(t, plug(t, m))
	if err := m.Snapshot(t.Context(), bothy.SnapshotOptions{MemoryDir: dir, FilesTar: dir + ".tar", Stop: true}); err != nil {
		t.Fatal(err)
	}
	destroy(t, m)
	spec := s.spec("a")
	for _, image := range []*string{&spec.RootFS, &spec.Guest} { // an image may have moved since
		elsewhere := filepath.Join(s.dir, "elsewhere-"+filepath.Base(*image))
		b, err := os.ReadFile(*image)
		if err == nil {
			err = os.WriteFile(elsewhere, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		*image = elsewhere
	}
	n, err := s.begin(func() (bothy.Machine, error) { return s.e.Restore(t.Context(), spec, dir) })
	if err != nil {
		t.Fatal(err)
	}
	s.answers(t, plug(t, n))
}

func stopAndGoOn(t *testing.T, s *suite) {
	dir := s.snapshots(t)
	m := s.start(t, "a")
	g := plug(t, m)
	s.answers(t, g)
	if err := m.Snapshot(t.Context(), bothy.SnapshotOptions{MemoryDir: dir, Stop: true}); err != nil {
		t.Fatal(err)
	}
	if err := m.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.answers(t, g)
	// A snapshot that cannot be written changes nothing.
	if err := m.Snapshot(t.Context(), bothy.SnapshotOptions{MemoryDir: dir + "/none"}); err == nil {
		t.Error("a snapshot into a folder that is not there")
	}
	s.answers(t, g)
}

func filesAlone(t *testing.T, s *suite) {
	dir := s.snapshots(t)
	tar, memory := filepath.Join(dir, "files.tar"), filepath.Join(dir, "memory")
	if err := os.Mkdir(memory, 0o711); err != nil {
		t.Fatal(err)
	}
	m := s.start(t, "a")
	s.answers(t, plug(t, m))
	if err := m.Snapshot(t.Context(), bothy.SnapshotOptions{FilesTar: tar}); err != nil {
		t.Fatal(err)
	}
	spec := s.spec("b")
	spec.FilesTar = tar
	n, err := s.begin(func() (bothy.Machine, error) { return s.e.Start(t.Context(), spec) })
	if err != nil {
		t.Fatal(err)
	}
	s.answers(t, plug(t, n))
	// From then on it is a machine like any other.
	if err := n.Snapshot(t.Context(), bothy.SnapshotOptions{MemoryDir: memory, Stop: true}); err != nil {
		t.Fatal(err)
	}
	destroy(t, n)
	n, err = s.begin(func() (bothy.Machine, error) { return s.e.Restore(t.Context(), s.spec("b"), memory) })
	if err != nil {
		t.Fatal(err)
	}
	s.answers(t, plug(t, n))
}

func damagedSnapshot(t *testing.T, s *suite) {
	dir := s.snapshots(t)
	if _, err := s.e.Restore(t.Context(), s.spec("a"), dir); err == nil {
		t.Error("an empty snapshot was restored")
	}
	s.nothingLeft(t)
}
