package lifecycle_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/lifecycle/warm"
	"github.com/bothy-dev/bothy/store"
)

// others stands in for the other hosts of a cluster, which use up as much of the plan as the test
// says.
type others struct {
	shared
	mu     sync.Mutex
	beyond *store.PlanExceeded // the answer to the next start
	asked  []store.StartBounds
}

func (o *others) StartSandbox(ctx context.Context, sb *store.Sandbox, b store.StartBounds) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, b)
	if o.beyond != nil {
		return o.beyond
	}
	return o.shared.StartSandbox(ctx, sb, b)
}

func (o *others) say(b *store.PlanExceeded) (asked int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.beyond = b
	return len(o.asked)
}

func withOthers(t *testing.T, pool warm.Options, plan bothy.Plan) (*world, *others) {
	o := &others{}
	p := &plans{plan: plan}
	w := newPoolWorld(t, pool, func(w *world) {
		w.change = func(l *lifecycle.Options) { o.Store, l.Plans, l.Cluster = l.Store, p, o }
	})
	return w, o
}

// nothingIsLeft checks that a refused sandbox left no record and no machine.
func (w *world) nothingIsLeft(what string, sandboxes, machines int) {
	w.t.Helper()
	page, err := w.List(w.me(), bothy.SandboxFilter{})
	if err != nil || len(page.Items) != sandboxes {
		w.t.Errorf("%s: %d sandboxes are listed, want %d (%v)", what, len(page.Items), sandboxes, err)
	}
	eventually(w.t, what+": its machine is gone", func() bool { return len(w.host.IDs()) == machines })
}

func TestAStartIsRefusedIfOtherHostsUseUpThePlan(t *testing.T) {
	three := 3
	w, o := withOthers(t, warm.Options{}, bothy.Plan{Name: "three", Sandboxes: &three, CreatesPerMinute: 10})
	first := w.create(small("a"))
	if want := (store.StartBounds{Sandboxes: &three, PerMinute: 10}); len(o.asked) != 1 || o.asked[0] != want {
		t.Errorf("the store was called with %+v", o.asked)
	}
	o.say(&store.PlanExceeded{Live: 3})
	_, err := w.tryCreate(small("a"))
	wantCode(t, err, bothy.CodeQuota)
	w.nothingIsLeft("refused", 1, 1)
	_, err = w.Fork(w.me(), first.ID, bothy.ForkRequest{Count: 1})
	wantCode(t, err, bothy.CodeQuota)
	w.nothingIsLeft("a fork", 1, 1)

	o.say(nil)
	w.pause(first.ID)
	o.say(&store.PlanExceeded{Live: 3})
	_, err = w.Resume(w.me(), first.ID, bothy.ResumeOptions{})
	wantCode(t, err, bothy.CodeQuota)
	if got := w.get(first.ID); got.State != bothy.StatePaused {
		t.Errorf("after the refusal it is %s", got.State)
	}
	o.say(nil)
	if _, err := w.Resume(w.me(), first.ID, bothy.ResumeOptions{}); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if b := o.asked[len(o.asked)-1]; b.PerMinute != 0 || b.Sandboxes == nil {
		t.Errorf("a resume counts as %+v", b)
	}
	if l, err := w.Limits(w.me()); err != nil || l.Sandboxes.Used != 1 {
		t.Errorf("limits: %+v, %v", l.Sandboxes, err)
	}
}

func TestAReadyMachineIsNotAssignedIfOtherHostsUseUpThePlan(t *testing.T) {
	three := 3
	w, o := withOthers(t, warm.Options{Ready: 1, ReadyMax: 1, Templates: []string{"a"}}, bothy.Plan{Name: "three", Sandboxes: &three})
	w.hasReady(1)
	o.say(&store.PlanExceeded{Live: 3})
	before := w.pooled()
	_, err := w.tryCreate(small("a"))
	wantCode(t, err, bothy.CodeQuota)
	w.hasReady(1)
	if after := w.pooled(); len(before) == 1 && len(after) == 1 && before[0] == after[0] {
		t.Error("a machine that was already adopted is ready again")
	}
	w.nothingIsLeft("refused", 0, 1)
	o.say(nil)
	w.create(small("a"))
}

func TestTheStoreIsNotAskedBeforeTheRetryTime(t *testing.T) {
	w, o := withOthers(t, warm.Options{}, bothy.Plan{Name: "slow", CreatesPerMinute: 3})
	o.say(&store.PlanExceeded{Wait: 7 * time.Second})
	_, err := w.tryCreate(small("a"))
	wantCode(t, err, bothy.CodeRateLimited)
	asked := o.say(nil)
	w.clock.pass(5 * time.Second)
	_, err = w.tryCreate(small("a"))
	wantCode(t, err, bothy.CodeRateLimited)
	if after := bothy.AsError(err).RetryAfter; after != 2*time.Second {
		t.Errorf("retry_after is %v, want 2 s", after)
	}
	if now := o.say(nil); now != asked {
		t.Error("the store was asked too early")
	}
	if _, err := w.Create(as(t, "other"), small("a")); err != nil {
		t.Errorf("another project: %v", err)
	}
	w.clock.pass(2 * time.Second)
	w.create(small("a"))
}

func TestACreateFromATemplateWithMemoryCountsOnce(t *testing.T) {
	w := newPoolWorld(t, warm.Options{}, func(w *world) {
		w.change = func(o *lifecycle.Options) {
			o.Plans = &plans{plan: bothy.Plan{Name: "slow", CreatesPerMinute: 3}}
		}
	})
	w.templates.(*shelf).keep(w, "server", w.create(small("a")))
	for range 2 {
		w.create(small("server"))
	}
	_, err := w.tryCreate(small("server"))
	wantCode(t, err, bothy.CodeRateLimited)
}
