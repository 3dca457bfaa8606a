package lifecycle_test

import (
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/fake"
	"github.com/bothy-dev/bothy/lifecycle"
)

// onProcessor restarts the server on a host with a processor level, which shows sandboxes another
// level.
func (w *world) onProcessor(level, shown string, change func(*lifecycle.Options)) {
	w.t.Helper()
	w.change = func(o *lifecycle.Options) {
		host := bothy.Processor{Vendor: "AuthenticAMD", Level: level, CacheLine: 64, Features: bothy.CPUFeatures(level)}
		info := fake.New(w.host, w.build).Info()
		info.Host, info.Shown, info.CPULevel = host, host.Shown(shown), shown
		w.engine = fake.As(w.host, info)
		o.Engines = map[string]bothy.Engine{"fake": w.engine}
		if change != nil {
			change(o)
		}
	}
	w.restart()
}

// needs returns the needs of the snapshot that a sandbox is paused in.
func (w *world) needs(id string) *bothy.MemoryNeeds {
	w.t.Helper()
	sb, err := w.store.Sandbox(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	n, err := w.store.Snapshot(w.t.Context(), sb.SnapshotID)
	if err != nil {
		w.t.Fatal(err)
	}
	return n.Needs
}

// A snapshot records the processor features that its processes may use: those shown when they started,
// even if the server's settings have changed since.
func TestASnapshotRecordsTheProcessorItNeeds(t *testing.T) {
	w := newWorld(t)
	w.onProcessor(bothy.CPULevel4, bothy.CPUHost, nil)
	whole := w.create(bothy.SandboxCreate{})
	w.onProcessor(bothy.CPULevel4, bothy.CPULevel2, nil)
	masked := w.create(bothy.SandboxCreate{})
	for _, want := range []struct {
		id, level string
	}{{whole.ID, bothy.CPULevel4}, {masked.ID, bothy.CPULevel2}} {
		for range 2 { // the second time after a resume with memory
			if _, err := w.Pause(w.me(), want.id, bothy.PauseOptions{}); err != nil {
				t.Fatal(err)
			}
			n := w.needs(want.id)
			if n == nil || n.Engine != "fake" || n.Build != w.build || n.Processor == nil || n.Processor.Level != want.level {
				t.Fatalf("its snapshot needs %+v, want level %s", n, want.level)
			}
			if sb, err := w.Resume(w.me(), want.id, bothy.ResumeOptions{}); err != nil || sb.Resumed.Kind != bothy.SnapshotMemory {
				t.Fatalf("%+v %v", sb, err)
			}
		}
	}
	// Restarted with its files only, it sees the current level.
	if _, err := w.Pause(w.me(), whole.ID, bothy.PauseOptions{FilesOnly: true}); err != nil {
		t.Fatal(err)
	}
	if n := w.needs(whole.ID); n != nil {
		t.Errorf("a snapshot without memory needs %+v", n)
	}
	if _, err := w.Resume(w.me(), whole.ID, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Pause(w.me(), whole.ID, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := w.needs(whole.ID); n.Processor.Level != bothy.CPULevel2 {
		t.Errorf("its snapshot needs %s", n.Processor)
	}
}

// On a processor that lacks features a snapshot needs, only the files are restored. In a cluster the
// resume first fails with an error and the sandbox stays paused.
func TestMemoryOfAnotherProcessorIsNotRestored(t *testing.T) {
	w := newWorld(t)
	w.onProcessor(bothy.CPULevel4, bothy.CPUHost, nil)
	sb := w.create(bothy.SandboxCreate{})
	if _, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	w.onProcessor(bothy.CPULevel3, bothy.CPUHost, func(o *lifecycle.Options) {
		asShared(o)
		o.Cluster = withoutHost{o.Cluster}
	})
	_, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{})
	if bothy.ErrorCode(err) != bothy.CodeUnsupported || !strings.Contains(bothy.AsError(err).Detail, "of AuthenticAMD x86-64-v4") {
		t.Errorf("in a cluster: %v", err)
	}
	if after := w.get(sb.ID); after.State != bothy.StatePaused {
		t.Errorf("it is %s", after.State)
	}
	if _, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{FilesOnly: true}); err != nil {
		t.Errorf("resuming its files only: %v", err)
	}

	w.onProcessor(bothy.CPULevel4, bothy.CPUHost, nil)
	sb = w.create(bothy.SandboxCreate{})
	if _, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	w.onProcessor(bothy.CPULevel3, bothy.CPUHost, nil)
	back, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{})
	if err != nil || back.Resumed.Kind != bothy.SnapshotFiles || !strings.Contains(back.Resumed.Detail, "without adx, avx512bw") {
		t.Errorf("without a cluster: %+v %v", back, err)
	}
}

// A host refuses a sandbox whose memory it could not restore before the sandbox is stopped.
func TestASandboxCannotMoveToALowerProcessor(t *testing.T) {
	for _, c := range []struct {
		shown   string
		refused bool
	}{{bothy.CPUHost, true}, {bothy.CPULevel3, false}} {
		t.Run(c.shown, func(t *testing.T) {
			p := newPair(t)
			p.one.onProcessor(bothy.CPULevel4, c.shown, p.one.change)
			p.two.onProcessor(bothy.CPULevel3, bothy.CPUHost, p.two.change)
			sb := p.one.create(bothy.SandboxCreate{})
			refused, err := p.move(sb.ID)
			if !c.refused {
				if refused || err != nil {
					t.Errorf("%v %v", refused, err)
				}
				p.on(t, "moved", sb.ID, p.two, bothy.StateRunning)
				return
			}
			if !refused || bothy.ErrorCode(err) != bothy.CodeConflict || !strings.Contains(bothy.AsError(err).Detail, "another processor") || p.parked != 0 {
				t.Errorf("%v %v, parked %d times", refused, err, p.parked)
			}
			p.on(t, "refused", sb.ID, p.one, bothy.StateRunning)
		})
	}
}

func TestLabelsOfHosts(t *testing.T) {
	w := newWorld(t)
	ask := func(labels map[string]string) error {
		_, err := w.Create(w.me(), bothy.SandboxCreate{HostLabels: labels})
		return err
	}
	wantCode(t, ask(map[string]string{"zone": "a"}), bothy.CodeUnsupported)
	w.reopen(withLabels(map[string]string{"zone": "a", "disk": "fast"}))
	wantCode(t, ask(map[string]string{"zone": "b"}), bothy.CodeCapacity)
	many := map[string]string{}
	for i := range 17 {
		many[strings.Repeat("x", i+1)] = "y"
	}
	wantCode(t, ask(many), bothy.CodeInvalid)
	sb := w.create(bothy.SandboxCreate{HostLabels: map[string]string{"zone": "a"}})
	if got := w.get(sb.ID); len(got.HostLabels) != 1 || got.HostLabels["zone"] != "a" {
		t.Errorf("the labels are %v", got.HostLabels)
	}
}
