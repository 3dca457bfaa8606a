package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/metering"
	"github.com/bothy-dev/bothy/store"
)

// uptime adapts the tests' clock to metering.Clock.
type uptime struct{ *clock }

func (u uptime) Now() store.Moment {
	now := u.clock.Now()
	return store.Moment{Wall: now, Boot: "boot", Uptime: now.Sub(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))}
}

// metered is a world whose server meters: a second of a vCPU costs 1.
type metered struct {
	*world
	meter *metering.Meter
}

func newMetered(t *testing.T, change ...func(*lifecycle.Options)) *metered {
	w := newWorld(t)
	m := &metered{world: w}
	w.closeServer()
	w.change = func(o *lifecycle.Options) {
		var err error
		m.meter, err = metering.New(t.Context(), metering.Options{
			Store: w.store, Sandbox: w.store.Sandbox, Snapshots: w.store.AllSnapshots, Clock: uptime{w.clock},
			Templates: func(context.Context) ([]*store.Template, error) { return nil, nil },
			Project:   func(context.Context, string) error { return nil },
			Rates:     bothy.Rates{Currency: "EUR", VCPUHour: 3600},
		})
		if err != nil {
			t.Fatal(err)
		}
		o.Meter = m.meter
		for _, c := range change {
			c(o)
		}
	}
	w.open()
	m.meter.Serve(w.Service)
	return m
}

// spend advances the clock and waits for budgets to be enforced.
func (m *metered) spend(d time.Duration) {
	m.clock.pass(d)
	m.meter.Tick(m.t.Context())
}

func (m *metered) wantState(id string, want bothy.State) {
	m.t.Helper()
	eventually(m.t, id+" is "+string(want), func() bool { return m.get(id).State == want })
}

func (m *metered) types() (types []string) {
	err := m.Events(m.me(), bothy.EventFilter{}, func(e bothy.Event) error {
		types = append(types, e.Type)
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return types
}

func (m *metered) used(t *testing.T) bothy.Usage {
	t.Helper()
	now := m.clock.Now()
	r, err := m.meter.Usage(m.me(), bothy.UsageQuery{From: now.AddDate(0, -1, 0), To: now.AddDate(0, 1, 0)})
	if err != nil {
		t.Fatal(err)
	}
	return r.Total
}

func TestSandboxesAreMetered(t *testing.T) {
	m := newMetered(t)
	sb := m.create(bothy.SandboxCreate{CPU: 2, MemoryMB: 256, TimeoutSeconds: new(0)})
	m.spend(10 * time.Second)
	n, err := m.Pause(m.me(), sb.ID, bothy.PauseOptions{Name: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	m.spend(time.Hour)
	if _, err := m.Resume(m.me(), sb.ID, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	m.spend(5 * time.Second)
	if _, err := m.Rollback(m.me(), sb.ID, n.ID); err != nil {
		t.Fatal(err)
	}
	m.spend(5 * time.Second)
	m.clock.pass(3 * time.Second)
	m.restart()
	m.meter.Serve(m.Service)
	m.spend(2 * time.Second)
	if err := m.Terminate(m.me(), sb.ID); err != nil {
		t.Fatal(err)
	}
	m.spend(time.Hour)
	got := m.used(t)
	if got.VCPUSeconds != 2*25 || got.MemoryMBSeconds != 256*25 {
		t.Errorf("got %+v, want 25 seconds", got)
	}
	if got.SnapshotMBSeconds < 3600 {
		t.Errorf("its snapshot used no storage: %+v", got)
	}
}

func TestProjectBudgetPauses(t *testing.T) {
	m := newMetered(t)
	forever := new(0)
	first := m.create(bothy.SandboxCreate{TimeoutSeconds: forever})
	second := m.create(bothy.SandboxCreate{TimeoutSeconds: forever, AutoResume: true})
	other, err := m.Create(as(t, "other"), bothy.SandboxCreate{TimeoutSeconds: forever})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.meter.SetProjectBudget(t.Context(), "mine", 20); err != nil {
		t.Fatal(err)
	}
	m.spend(8 * time.Second)
	m.spend(2 * time.Second)
	m.wantState(first.ID, bothy.StatePaused)
	m.wantState(second.ID, bothy.StatePaused)
	if sb, err := m.Get(as(t, "other"), other.ID); err != nil || sb.State != bothy.StateRunning {
		t.Errorf("the sandbox of another project: %+v, %v", sb, err)
	}
	types := m.types()
	for _, want := range []string{bothy.EventBudgetWarning, bothy.EventBudgetExceeded} {
		if n := len(slices.DeleteFunc(slices.Clone(types), func(s string) bool { return s != want })); n != 1 {
			t.Errorf("the event %s was sent %d times", want, n)
		}
	}

	_, err = m.Create(m.me(), bothy.SandboxCreate{})
	wantCode(t, err, bothy.CodeBudget)
	_, err = m.Resume(m.me(), first.ID, bothy.ResumeOptions{})
	wantCode(t, err, bothy.CodeBudget)
	_, err = m.Fork(m.me(), first.ID, bothy.ForkRequest{Count: 2})
	wantCode(t, err, bothy.CodeBudget)
	_, err = m.Create(m.me(), bothy.SandboxCreate{SnapshotID: m.snapshotOf(first.ID)})
	wantCode(t, err, bothy.CodeBudget)
	_, err = m.Rollback(m.me(), first.ID, m.snapshotOf(first.ID))
	wantCode(t, err, bothy.CodeBudget)
	_, err = m.Exec(m.me(), second.ID, bothy.ExecRequest{Command: bothy.Command{Line: "true"}})
	wantCode(t, err, bothy.CodeBudget)
	if l, err := m.Limits(m.me()); err != nil || l.Budget == nil || l.Budget.Limit != 20 || l.Budget.Used < 20 {
		t.Errorf("limits: %+v, %v", l, err)
	}

	m.restart()
	m.meter.Serve(m.Service)
	_, err = m.Resume(m.me(), first.ID, bothy.ResumeOptions{})
	wantCode(t, err, bothy.CodeBudget)
	if err := m.meter.SetProjectBudget(t.Context(), "mine", 100); err != nil {
		t.Fatal(err)
	}
	sb, err := m.Resume(m.me(), first.ID, bothy.ResumeOptions{})
	if err != nil || sb.Resumed.Kind != bothy.SnapshotMemory {
		t.Errorf("after it was raised: %+v, %v", sb, err)
	}
}

func (m *metered) snapshotOf(id string) string {
	m.t.Helper()
	p, err := m.Snapshots(m.me(), bothy.SnapshotFilter{SandboxID: id})
	if err != nil || len(p.Items) == 0 {
		m.t.Fatalf("no snapshot of %s: %v", id, err)
	}
	return p.Items[0].ID
}

func TestTreeBudgetPauses(t *testing.T) {
	m := newMetered(t)
	forever := new(0)
	root := m.create(bothy.SandboxCreate{TimeoutSeconds: forever, Budget: 30})
	stranger := m.create(bothy.SandboxCreate{TimeoutSeconds: forever})
	n, err := m.CreateSnapshot(m.me(), root.ID, bothy.SnapshotCreate{})
	if err != nil {
		t.Fatal(err)
	}
	forks, err := m.Fork(m.me(), root.ID, bothy.ForkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	grandchild, err := m.Fork(m.me(), forks[0].ID, bothy.ForkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	descendant := m.create(bothy.SandboxCreate{SnapshotID: n.ID, TimeoutSeconds: forever})
	tree := []string{root.ID, forks[0].ID, grandchild[0].ID, descendant.ID}
	for _, id := range tree {
		if sb := m.get(id); sb.BudgetRoot != root.ID || sb.Budget != 30 {
			t.Errorf("%s counts against %q of %v", id, sb.BudgetRoot, sb.Budget)
		}
	}
	_, err = m.Create(m.me(), bothy.SandboxCreate{SnapshotID: n.ID, Budget: 5})
	wantCode(t, err, bothy.CodeInvalid)

	m.spend(8 * time.Second) // four of them: 32
	for _, id := range tree {
		m.wantState(id, bothy.StatePaused)
	}
	if sb := m.get(stranger.ID); sb.State != bothy.StateRunning {
		t.Errorf("an unrelated sandbox is %s", sb.State)
	}
	m.create(bothy.SandboxCreate{})
	_, err = m.Resume(m.me(), descendant.ID, bothy.ResumeOptions{})
	wantCode(t, err, bothy.CodeBudget)
	_, err = m.Fork(m.me(), root.ID, bothy.ForkRequest{})
	wantCode(t, err, bothy.CodeBudget)

	if err := m.Terminate(m.me(), root.ID); err != nil {
		t.Fatal(err)
	}
	sb, err := m.Update(m.me(), descendant.ID, bothy.SandboxUpdate{Budget: new(50.0)})
	if err != nil || sb.Budget != 50 {
		t.Fatalf("raised by a descendant: %+v, %v", sb, err)
	}
	if _, err := m.Resume(m.me(), descendant.ID, bothy.ResumeOptions{}); err != nil {
		t.Error(err)
	}
	if sb := m.get(forks[0].ID); sb.Budget != 50 {
		t.Errorf("a sibling has %v", sb.Budget)
	}
}

func TestBudgetOfARunningSandbox(t *testing.T) {
	m := newMetered(t)
	sb := m.create(bothy.SandboxCreate{TimeoutSeconds: new(0)})
	m.spend(time.Minute)
	if _, err := m.Update(m.me(), sb.ID, bothy.SandboxUpdate{Budget: new(10.0)}); err != nil {
		t.Fatal(err)
	}
	m.spend(9 * time.Second)
	if got := m.get(sb.ID); got.State != bothy.StateRunning || got.Budget != 10 {
		t.Errorf("before it is used up: %+v", got)
	}
	m.spend(time.Second)
	m.wantState(sb.ID, bothy.StatePaused)
	for _, amount := range []float64{-1, 1e13} {
		_, err := m.Update(m.me(), sb.ID, bothy.SandboxUpdate{Budget: &amount})
		wantCode(t, err, bothy.CodeInvalid)
		_, err = m.Create(m.me(), bothy.SandboxCreate{Budget: amount})
		wantCode(t, err, bothy.CodeInvalid)
	}
}

// A sandbox is paused for its budget even if its snapshot exceeds the storage quota.
func TestBudgetBeyondTheQuota(t *testing.T) {
	m := newMetered(t, func(o *lifecycle.Options) { o.Retention.ProjectBytes = 1 })
	sb := m.create(bothy.SandboxCreate{TimeoutSeconds: new(0), Budget: 5})
	_, err := m.Pause(m.me(), sb.ID, bothy.PauseOptions{})
	wantCode(t, err, bothy.CodeQuota)
	m.spend(5 * time.Second)
	m.wantState(sb.ID, bothy.StatePaused)
}

func TestSandboxThatCannotBePausedKeepsRunning(t *testing.T) {
	m := newMetered(t)
	sb := m.create(bothy.SandboxCreate{TimeoutSeconds: new(0), Budget: 5})
	var failing atomic.Bool
	var tries atomic.Int32
	failing.Store(true)
	defer failpoint.Set("lifecycle.freeze", func() error {
		tries.Add(1)
		if failing.Load() {
			return errors.New("the disk is full")
		}
		return nil
	})()
	m.spend(5 * time.Second)
	eventually(t, "it was tried", func() bool { return tries.Load() > 0 })
	m.wantState(sb.ID, bothy.StateRunning)
	failing.Store(false)
	eventually(t, "it is tried again", func() bool {
		m.spend(time.Minute)
		return m.get(sb.ID).State == bothy.StatePaused
	})
}

func TestFailedStartLeavesNoBudget(t *testing.T) {
	m := newMetered(t)
	m.host.FailStart = func(string) error { return context.DeadlineExceeded }
	if _, err := m.Create(m.me(), bothy.SandboxCreate{Budget: 5}); err == nil {
		t.Fatal("the start succeeded")
	}
	if trees := m.meter.Trees(); len(trees) != 0 {
		t.Errorf("%v have budgets", trees)
	}
}
