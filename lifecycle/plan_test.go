package lifecycle_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle"
)

// plans is a lifecycle.Plans with one plan for everybody.
type plans struct {
	mu   sync.Mutex
	plan bothy.Plan
}

func (p *plans) Plan(context.Context, string) (bothy.Plan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plan, nil
}

func (p *plans) set(plan bothy.Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = plan
}

func withPlan(t *testing.T, name string) (*world, *plans) {
	w := newWorld(t)
	p := &plans{plan: bothy.Plans[name]}
	w.change = func(o *lifecycle.Options) { o.Plans = p }
	w.restart()
	return w, p
}

func (w *world) tryCreate(req bothy.SandboxCreate) (*bothy.Sandbox, error) {
	return w.Create(w.me(), req)
}

func TestPlanLimitsOneSandbox(t *testing.T) {
	w, _ := withPlan(t, bothy.PlanStarter)
	never, long := 0, 7200
	for what, req := range map[string]bothy.SandboxCreate{
		"cpu":     {CPU: 2},
		"memory":  {MemoryMB: 2048},
		"disk":    {DiskMB: 8192},
		"never":   {TimeoutSeconds: &never},
		"long":    {TimeoutSeconds: &long},
		"network": {Network: &bothy.Network{Mode: bothy.NetworkOpen}},
	} {
		_, err := w.tryCreate(req)
		if wantCode(t, err, bothy.CodeQuota); err != nil && bothy.AsError(err).Hint == "" {
			t.Errorf("%s: no hint: %v", what, err)
		}
	}
	sb := w.create(bothy.SandboxCreate{})
	_, err := w.Update(w.me(), sb.ID, bothy.SandboxUpdate{TimeoutSeconds: &long})
	wantCode(t, err, bothy.CodeQuota)
	_, err = w.Update(w.me(), sb.ID, bothy.SandboxUpdate{Network: &bothy.Network{Mode: bothy.NetworkOpen}})
	wantCode(t, err, bothy.CodeQuota)
	name := "renamed"
	if _, err := w.Update(w.me(), sb.ID, bothy.SandboxUpdate{Name: &name}); err != nil {
		t.Errorf("a change that no plan limits: %v", err)
	}
	if got := w.get(sb.ID); got.TimeoutSeconds != bothy.DefaultTimeoutSeconds || got.Network.Mode != bothy.NetworkOff {
		t.Errorf("a refused change had an effect: %+v", got)
	}
}

func TestPlanLimitsConcurrentSandboxes(t *testing.T) {
	w, _ := withPlan(t, bothy.PlanStarter)
	first := w.create(bothy.SandboxCreate{})
	_, err := w.tryCreate(bothy.SandboxCreate{})
	wantCode(t, err, bothy.CodeQuota)
	_, err = w.Fork(w.me(), first.ID, bothy.ForkRequest{Count: 1})
	wantCode(t, err, bothy.CodeQuota)
	if _, err := w.Create(as(t, "other"), bothy.SandboxCreate{}); err != nil {
		t.Errorf("another project's sandbox: %v", err)
	}
	l, err := w.Limits(w.me())
	if err != nil || l.Plan != bothy.PlanStarter || l.Sandboxes.Used != 1 || *l.Sandboxes.Limit != 1 || l.Sandbox.CPU != 1 || l.Sandbox.NoTimeout {
		t.Errorf("limits %+v, %v", l, err)
	}
	// A paused sandbox does not count, and cannot be resumed while another has its place.
	w.pause(first.ID)
	second := w.create(bothy.SandboxCreate{})
	_, err = w.Resume(w.me(), first.ID, bothy.ResumeOptions{})
	wantCode(t, err, bothy.CodeQuota)
	if got := w.get(first.ID); got.State != bothy.StatePaused {
		t.Errorf("after the refusal it is %s", got.State)
	}
	if err := w.Terminate(w.me(), second.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Resume(w.me(), first.ID, bothy.ResumeOptions{}); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

func TestASmallerPlanKeepsExistingSandboxes(t *testing.T) {
	w, p := withPlan(t, bothy.PlanPro)
	a, b := w.create(bothy.SandboxCreate{CPU: 2}), w.create(bothy.SandboxCreate{})
	p.set(bothy.Plans[bothy.PlanStarter])
	for _, sb := range []*bothy.Sandbox{a, b} {
		if got := w.get(sb.ID); got.State != bothy.StateRunning {
			t.Errorf("it is %s", got.State)
		}
	}
	_, err := w.tryCreate(bothy.SandboxCreate{})
	wantCode(t, err, bothy.CodeQuota)
	w.restart()
	if l, err := w.Limits(w.me()); err != nil || l.Sandboxes.Used != 2 {
		t.Errorf("after a restart: %+v, %v", l, err)
	}
}

func TestConcurrentCreatesStayWithinThePlan(t *testing.T) {
	w, _ := withPlan(t, bothy.PlanPro)
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 20 {
		wg.Go(func() {
			_, err := w.tryCreate(bothy.SandboxCreate{})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
			} else if bothy.ErrorCode(err) != bothy.CodeQuota {
				t.Errorf("refused with %v", err)
			}
		})
	}
	wg.Wait()
	if made != 5 {
		t.Errorf("%d of 20 creates succeeded, but the plan has room for 5", made)
	}
}

func TestPlanLimitsTheRate(t *testing.T) {
	w, p := withPlan(t, bothy.PlanUnlimited)
	p.set(bothy.Plan{Name: "slow", CreatesPerMinute: 3})
	for range 3 {
		w.create(bothy.SandboxCreate{})
	}
	_, err := w.tryCreate(bothy.SandboxCreate{})
	wantCode(t, err, bothy.CodeRateLimited)
	if after := bothy.AsError(err).RetryAfter; after != 20*time.Second {
		t.Errorf("retry_after is %v, want 20 s", after)
	}
	w.clock.pass(20 * time.Second)
	w.create(bothy.SandboxCreate{})
}

func TestPlanLimitsSnapshotStorage(t *testing.T) {
	w, p := withPlan(t, bothy.PlanUnlimited)
	sb := w.create(bothy.SandboxCreate{})
	if _, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	none := int64(0) // already exceeded by the existing snapshot
	p.set(bothy.Plan{Name: "none", SnapshotsMB: &none})
	_, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: "two"})
	wantCode(t, err, bothy.CodeQuota)
}
