package lifecycle_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

func seconds(n int) *int { return &n }

func TestCreateUseAndTerminate(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{Name: "My Box", Env: map[string]string{"A": "b"}, Metadata: map[string]string{"k": "v"}})
	if sb.State != bothy.StateRunning || sb.Template != bothy.DefaultTemplate || sb.CPU != 1 || sb.MemoryMB != 512 || sb.DiskMB != 2048 ||
		sb.Network.Mode != bothy.NetworkOff || sb.TimeoutSeconds != 600 || sb.ExpiresAt == nil || sb.StartedAt == nil {
		t.Errorf("defaults: %+v", sb)
	}
	id := w.guests.last().identity()
	if id.SandboxID != sb.ID || id.Env["A"] != "b" || id.Env["T"] != "template" || id.Key == "" || len(id.Entropy) < 32 || len(id.MachineID) != 32 || id.Hostname != "mybox" {
		t.Errorf("identity: %+v", id)
	}
	r, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "hi"}})
	if err != nil || r.Stdout != "hi" {
		t.Errorf("exec: %+v, %v", r, err)
	}
	for range 2 {
		if err := w.Terminate(w.me(), sb.ID); err != nil {
			t.Error(err)
		}
	}
	end := w.get(sb.ID)
	if end.State != bothy.StateStopped || end.Ended == nil || end.Ended.Reason != bothy.EndTerminated || end.ExpiresAt != nil {
		t.Errorf("ended as %+v", end)
	}
	_, err = w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "hi"}})
	wantCode(t, err, bothy.CodeSandboxEnded)
	if n := w.Live(); n != 0 {
		t.Errorf("%d are live", n)
	}
}

func TestBadRequestsAreRefusedAndLeaveNothing(t *testing.T) {
	w := newWorld(t)
	long := make([]byte, 200)
	for name, c := range map[string]struct {
		req  bothy.SandboxCreate
		code bothy.Code
	}{
		"template":      {bothy.SandboxCreate{Template: "none"}, bothy.CodeTemplateNotFound},
		"cpu":           {bothy.SandboxCreate{CPU: 64}, bothy.CodeInvalid},
		"cpu not a num": {bothy.SandboxCreate{CPU: math.NaN()}, bothy.CodeInvalid},
		"memory":        {bothy.SandboxCreate{MemoryMB: 1}, bothy.CodeInvalid},
		"disk":          {bothy.SandboxCreate{DiskMB: 1 << 30}, bothy.CodeInvalid},
		"size":          {bothy.SandboxCreate{Size: "huge"}, bothy.CodeInvalid},
		"time-out":      {bothy.SandboxCreate{TimeoutSeconds: seconds(-1)}, bothy.CodeInvalid},
		"on_timeout":    {bothy.SandboxCreate{OnTimeout: "explode"}, bothy.CodeInvalid},
		"engine":        {bothy.SandboxCreate{Engine: "steam"}, bothy.CodeInvalid},
		"name":          {bothy.SandboxCreate{Name: string(long)}, bothy.CodeInvalid},
		"env":           {bothy.SandboxCreate{Env: map[string]string{"A=B": "c"}}, bothy.CodeInvalid},
		"metadata":      {bothy.SandboxCreate{Metadata: map[string]string{"": "c"}}, bothy.CodeInvalid},
		"snapshot":      {bothy.SandboxCreate{SnapshotID: "snpnone"}, bothy.CodeSnapshotNotFound},
	} {
		_, err := w.Create(w.me(), c.req)
		if bothy.ErrorCode(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	p, err := w.List(w.me(), bothy.SandboxFilter{})
	if err != nil || len(p.Items) != 0 || w.Live() != 0 {
		t.Errorf("left: %v, %v", p.Items, err)
	}
}

// Errors must not tell whether another project has something.
func TestForeignAndMissingAreAlike(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	snap, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	spy := as(t, "theirs")
	for what, ids := range map[string]struct {
		foreign, missing string
		get              func(id string) error
	}{
		"sandbox":  {sb.ID, "sbx0000000000000000", func(id string) error { _, err := w.Get(spy, id); return err }},
		"use":      {sb.ID, "sbx0000000000000000", func(id string) error { _, err := w.Files().Stat(spy, id, "/", ""); return err }},
		"snapshot": {snap.ID, "snp0000000000000000", func(id string) error { _, err := w.Snapshot(spy, id); return err }},
	} {
		one, other := bothy.AsError(ids.get(ids.foreign)), bothy.AsError(ids.get(ids.missing))
		if one.Code != other.Code || one.Hint != other.Hint || strings.ReplaceAll(one.Detail, ids.foreign, ids.missing) != other.Detail {
			t.Errorf("%s: another project's is %q (%s), a missing one %q (%s)", what, one, one.Hint, other, other.Hint)
		}
	}
}

func TestAnotherProjectSeesNothing(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	snap, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	spy := as(t, "theirs")
	_, err = w.Get(spy, sb.ID)
	wantCode(t, err, bothy.CodeSandboxNotFound)
	_, err = w.Exec(spy, sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}})
	wantCode(t, err, bothy.CodeSandboxNotFound)
	_, err = w.Files().Stat(spy, sb.ID, "/", "")
	wantCode(t, err, bothy.CodeSandboxNotFound)
	_, err = w.Update(spy, sb.ID, bothy.SandboxUpdate{TimeoutSeconds: seconds(1)})
	wantCode(t, err, bothy.CodeSandboxNotFound)
	wantCode(t, w.Terminate(spy, sb.ID), bothy.CodeSandboxNotFound)
	_, err = w.Pause(spy, sb.ID, bothy.PauseOptions{})
	wantCode(t, err, bothy.CodeSandboxNotFound)
	_, err = w.Fork(spy, sb.ID, bothy.ForkRequest{})
	wantCode(t, err, bothy.CodeSandboxNotFound)
	_, err = w.Snapshot(spy, snap.ID)
	wantCode(t, err, bothy.CodeSnapshotNotFound)
	wantCode(t, w.DeleteSnapshot(spy, snap.ID), bothy.CodeSnapshotNotFound)
	_, err = w.Resume(spy, snap.ID, bothy.ResumeOptions{})
	wantCode(t, err, bothy.CodeSnapshotNotFound)
	rival := as(t, "a rival's")
	theirs, err := w.Create(rival, bothy.SandboxCreate{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Rollback(rival, theirs.ID, snap.ID)
	wantCode(t, err, bothy.CodeSnapshotNotFound)
	_, err = w.Rollback(spy, sb.ID, snap.ID)
	wantCode(t, err, bothy.CodeSandboxNotFound)
	_, err = w.Create(spy, bothy.SandboxCreate{SnapshotID: snap.ID})
	wantCode(t, err, bothy.CodeSnapshotNotFound)
	if p, err := w.List(spy, bothy.SandboxFilter{}); err != nil || len(p.Items) != 0 {
		t.Errorf("the other project lists %v, %v", p.Items, err)
	}
	reader := bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: "mine", Scopes: []bothy.Scope{bothy.ScopeSandboxesRead}})
	wantCode(t, w.Terminate(reader, sb.ID), bothy.CodeForbidden)
	_, err = w.Get(t.Context(), sb.ID)
	wantCode(t, err, bothy.CodeUnauthenticated)
}

func TestTimeOut(t *testing.T) {
	w := newWorld(t)
	short := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(60)})
	long := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(60)})
	forever := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	if forever.ExpiresAt != nil {
		t.Errorf("a sandbox without time-out expires at %v", forever.ExpiresAt)
	}
	w.clock.pass(30 * time.Second)
	if _, err := w.Update(w.me(), long.ID, bothy.SandboxUpdate{TimeoutSeconds: seconds(100)}); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(31 * time.Second)
	if sb := w.get(short.ID); sb.State != bothy.StateStopped || sb.Ended.Reason != bothy.EndTimeout {
		t.Errorf("after its time-out: %+v", sb)
	}
	if sb := w.get(long.ID); sb.State != bothy.StateRunning {
		t.Errorf("with a longer time-out: %+v", sb)
	}
	w.clock.pass(100 * time.Second)
	if sb := w.get(long.ID); sb.State != bothy.StateStopped {
		t.Errorf("after the longer time-out: %+v", sb)
	}
	if sb := w.get(forever.ID); sb.State != bothy.StateRunning {
		t.Errorf("without time-out: %+v", sb)
	}
}

func TestTimeOutThatPauses(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(60), OnTimeout: bothy.TimeoutPause, AutoResume: true})
	w.clock.pass(time.Minute)
	if got := w.get(sb.ID); got.State != bothy.StatePaused {
		t.Fatalf("after its time-out: %+v", got)
	}
	if _, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}}); err != nil {
		t.Fatalf("it is not resumed on use: %v", err)
	}
	if got := w.get(sb.ID); got.State != bothy.StateRunning || got.ExpiresAt == nil || !got.ExpiresAt.After(w.clock.Now()) {
		t.Errorf("after the resume: %+v", got)
	}
}

func TestTheReasonOfAMachinesEndIsRecorded(t *testing.T) {
	for _, c := range []struct {
		reason bothy.EndReason
		state  bothy.State
	}{{bothy.EndOutOfMemory, bothy.StateFailed}, {bothy.EndExited, bothy.StateStopped}, {bothy.EndError, bothy.StateFailed}} {
		w := newWorld(t)
		sb := w.create(bothy.SandboxCreate{})
		w.machine(sb.ID).End(bothy.Exit{Reason: c.reason, Detail: "because"})
		eventually(t, "the end is recorded", func() bool { return w.get(sb.ID).State.Ended() })
		if got := w.get(sb.ID); got.State != c.state || got.Ended.Reason != c.reason || got.Ended.Detail != "because" {
			t.Errorf("%s: %+v", c.reason, got)
		}
		_, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}})
		wantCode(t, err, bothy.CodeSandboxEnded)
	}
}

func TestMemoryLimitKillsAProcessAndNotTheSandbox(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{MemoryMB: 128})
	g := w.guests.last()
	w.machine(sb.ID).UseMemory(100 << 20)
	w.machine(sb.ID).UseMemory(129 << 20)
	eventually(t, "the guest is asked to kill", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.killed > 0 })
	w.machine(sb.ID).UseMemory(10 << 20)
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Errorf("the sandbox is %s", got.State)
	}
	eventually(t, "an event tells it", func() bool {
		found := false
		w.Events(w.me(), bothy.EventFilter{}, func(e bothy.Event) error {
			found = found || e.Type == bothy.EventSandboxOOM
			return nil
		})
		return found
	})
}

func TestAStartThatFailsAtAnyStepLeavesNothing(t *testing.T) {
	boom := errors.New("boom")
	for name, damage := range map[string]func(w *world) (restore func()){
		"engine":  func(w *world) func() { w.host.FailStart = func(string) error { return boom }; return func() {} },
		"started": func(*world) func() { return failpoint.Set("lifecycle.started", func() error { return boom }) },
		"adoption": func(w *world) func() {
			w.guests.failAdopt = boom
			return func() { w.guests.failAdopt = nil }
		},
		"adopted": func(*world) func() { return failpoint.Set("lifecycle.adopted", func() error { return boom }) },
		"stored":  func(*world) func() { return failpoint.Set("lifecycle.move.running", func() error { return boom }) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			restore := damage(w)
			_, err := w.Create(w.me(), bothy.SandboxCreate{})
			restore()
			if err == nil {
				t.Fatal("it succeeded")
			}
			if ids, err := w.engine.Sweep(t.Context(), func(string) bool { return false }); err != nil || len(ids) != 0 || w.Live() != 0 {
				t.Errorf("left: %v, %v", ids, err)
			}
			p, err := w.List(w.me(), bothy.SandboxFilter{})
			if err != nil || len(p.Items) != 1 || p.Items[0].State != bothy.StateFailed || p.Items[0].Ended.Reason != bothy.EndError {
				t.Errorf("recorded as %+v, %v", p.Items, err)
			}
		})
	}
}

func TestACallerWhoLeavesDuringTheStart(t *testing.T) {
	w := newWorld(t)
	w.host.StartDelay = time.Hour
	ctx, cancel := context.WithCancel(w.me())
	done := make(chan error)
	go func() {
		_, err := w.Create(ctx, bothy.SandboxCreate{})
		done <- err
	}()
	eventually(t, "the start begins", func() bool {
		p, err := w.List(w.me(), bothy.SandboxFilter{})
		return err == nil && len(p.Items) == 1
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if p, _ := w.List(w.me(), bothy.SandboxFilter{}); p.Items[0].State != bothy.StateFailed {
		t.Errorf("recorded as %+v", p.Items[0])
	}
}

func TestCapacity(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	made, refused := 0, 0
	for range 60 {
		wg.Go(func() {
			_, err := w.Create(w.me(), bothy.SandboxCreate{})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made++
			case bothy.ErrorCode(err) == bothy.CodeCapacity && bothy.AsError(err).RetryAfter > 0:
				refused++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made != 50 || refused != 10 {
		t.Errorf("of 60 creates with room for 50, %d succeeded and %d were refused", made, refused)
	}
}

func TestUpdateIsAppliedOrRefused(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	name := "new"
	net := bothy.Network{Mode: bothy.NetworkRestricted}
	got, err := w.Update(w.me(), sb.ID, bothy.SandboxUpdate{Name: &name, Network: &net, Metadata: map[string]string{"a": "b"}})
	if err != nil || got.Name != "new" || got.Network.Mode != bothy.NetworkRestricted || got.Metadata["a"] != "b" {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err = w.Update(w.me(), sb.ID, bothy.SandboxUpdate{TimeoutSeconds: seconds(-5)})
	wantCode(t, err, bothy.CodeInvalid)
	if again := w.get(sb.ID); again.TimeoutSeconds != 600 || again.Name != "new" {
		t.Errorf("a refused change had an effect: %+v", again)
	}
}
