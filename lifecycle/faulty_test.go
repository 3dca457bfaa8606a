package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy/lifecycle/engines"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/fake"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/store"
)

// fullStore is a store that refuses writes while its disk is full.
type fullStore struct {
	store.Store
	full *atomic.Bool
}

var errFull = bothy.Errorf(bothy.CodeDiskFull, "the disk is full")

func (s fullStore) PutSandbox(ctx context.Context, sb *store.Sandbox) error {
	if s.full.Load() {
		return errFull
	}
	return s.Store.PutSandbox(ctx, sb)
}

func (s fullStore) AddEvent(ctx context.Context, e *bothy.Event) error {
	if s.full.Load() {
		return errFull
	}
	return s.Store.AddEvent(ctx, e)
}

func (s fullStore) AddSnapshot(ctx context.Context, n *bothy.Snapshot, q store.SnapshotQuota) error {
	if s.full.Load() {
		return errFull
	}
	return s.Store.AddSnapshot(ctx, n, q)
}

// newFullWorld is a world whose disk is full while the returned flag is set.
func newFullWorld(t *testing.T) (*world, *atomic.Bool) {
	w, full := newWorld(t), &atomic.Bool{}
	w.change = func(o *lifecycle.Options) { o.Store = fullStore{o.Store, full} }
	w.restart()
	return w, full
}

// wantEvent waits until a sandbox has an event.
func (w *world) wantEvent(id, typ string) {
	w.t.Helper()
	found := false
	err := w.Events(w.me(), bothy.EventFilter{}, func(e bothy.Event) error {
		found = found || e.SandboxID == id && e.Type == typ
		return nil
	})
	if err != nil || !found {
		w.t.Errorf("there is no event %s of %s: %v", typ, id, err)
	}
}

func TestATimeOutOnAFullDiskEndsTheSandbox(t *testing.T) {
	w, full := newFullWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(60)})
	full.Store(true)
	w.clock.pass(time.Minute)
	if got := w.get(sb.ID); got.State != bothy.StateStopped || got.Ended.Reason != bothy.EndTimeout {
		t.Errorf("on the full disk it is %s: %+v", got.State, got.Ended)
	}
	if w.host.Machine(sb.ID) != nil {
		t.Error("its machine is still running")
	}
	if w.row(sb.ID).State != bothy.StateRunning {
		t.Fatal("the store accepted the write, so this test proves nothing")
	}
	full.Store(false)
	w.clock.pass(time.Minute)
	if got := w.row(sb.ID); got.State != bothy.StateStopped || got.Ended.Reason != bothy.EndTimeout {
		t.Errorf("with room again it is stored as %s: %+v", got.State, got.Ended)
	}
	w.clock.pass(time.Minute)
	w.wantEvent(sb.ID, bothy.EventSandboxEnded)
}

func TestAnEndOnAFullDiskIsVisibleAndStoredLater(t *testing.T) {
	w, full := newFullWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	full.Store(true)
	w.host.Machine(sb.ID).End(bothy.Exit{Reason: bothy.EndError, Detail: "it was killed"})
	eventually(t, "failed", func() bool { return w.get(sb.ID).State == bothy.StateFailed })
	_, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}})
	wantCode(t, err, bothy.CodeSandboxEnded)
	p, err := w.List(w.me(), bothy.SandboxFilter{States: []bothy.State{bothy.StateRunning}})
	if err != nil || len(p.Items) != 0 {
		t.Errorf("the list of running sandboxes has %d, %v", len(p.Items), err)
	}
	full.Store(false)
	w.clock.pass(time.Minute)
	if got := w.row(sb.ID); got.State != bothy.StateFailed || got.Ended.Detail != "it was killed" {
		t.Errorf("it is stored as %s: %+v", got.State, got.Ended)
	}
}

func TestAFailedCreateOnAFullDiskDoesNotStayStarting(t *testing.T) {
	w, full := newFullWorld(t)
	var id string
	w.host.FailStart = func(got string) error {
		id = got
		full.Store(true)
		return errors.New("no room")
	}
	if _, err := w.Create(w.me(), bothy.SandboxCreate{}); err == nil {
		t.Fatal("the start succeeded")
	}
	if got := w.get(id); got.State != bothy.StateFailed {
		t.Errorf("it is %s", got.State)
	}
	full.Store(false)
	w.clock.pass(time.Minute)
	if got := w.row(id); got.State != bothy.StateFailed {
		t.Errorf("it is stored as %s", got.State)
	}
}

func TestAFailedPauseOnAFullDiskKeepsTheSandboxRunning(t *testing.T) {
	w, full := newFullWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	full.Store(true)
	_, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{})
	wantCode(t, err, bothy.CodeDiskFull)
	// The disk fills up while the snapshot is written.
	full.Store(false)
	w.host.Snapshotting = func(context.Context, string) error { full.Store(true); return errFull }
	_, err = w.Pause(w.me(), sb.ID, bothy.PauseOptions{})
	wantCode(t, err, bothy.CodeDiskFull)
	w.host.Snapshotting = nil
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Errorf("it is %s", got.State)
	}
	if got := w.row(sb.ID); got.State != bothy.StatePausing {
		t.Fatalf("it is stored as %s, so this test proves nothing", got.State)
	}
	full.Store(false)
	w.clock.pass(time.Minute)
	if got := w.row(sb.ID); got.State != bothy.StateRunning {
		t.Errorf("with room again it is stored as %s", got.State)
	}
	if _, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); err != nil {
		t.Error(err)
	}
}

func TestAPauseWithoutTheMachinesFilesSaysSo(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	w.host.Snapshotting = func(context.Context, string) error {
		return fmt.Errorf("checkpoint: %w", &fs.PathError{Op: "open", Path: "/state/machines/x/control", Err: fs.ErrNotExist})
	}
	_, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{})
	wantCode(t, err, bothy.CodeEngine)
	if e := bothy.AsError(err); !strings.Contains(e.Detail, "missing on the host") || strings.Contains(e.Detail+e.Hint, "/state/") {
		t.Errorf("it says %q, %q", e.Detail, e.Hint)
	}
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Errorf("it is %s", got.State)
	}
}

func TestDeletingWorksOnAFullDisk(t *testing.T) {
	w, full := newFullWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	full.Store(true)
	if err := w.Terminate(w.me(), sb.ID); err != nil {
		t.Error(err)
	}
	if got := w.get(sb.ID); got.State != bothy.StateStopped || w.host.Machine(sb.ID) != nil {
		t.Errorf("it is %s", got.State)
	}
	// Pending changes are stored when the server stops, if there is room.
	full.Store(false)
	w.closeServer()
	w.open()
	if got := w.row(sb.ID); got.State != bothy.StateStopped {
		t.Errorf("it is stored as %s", got.State)
	}
}

// A pause's snapshot is deleted only after the store has recorded the end of the sandbox.
func TestAFailingStoreKeepsThePauseSnapshot(t *testing.T) {
	w, full := newFullWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	n, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	if err := w.Terminate(w.me(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Snapshot(t.Context(), n.ID); err != nil {
		t.Errorf("the stored row is %s but its snapshot is gone: %v", w.row(sb.ID).State, err)
	}
	full.Store(false)
	w.clock.pass(time.Minute)
	if _, err := w.store.Snapshot(t.Context(), n.ID); bothy.ErrorCode(err) != bothy.CodeSnapshotNotFound {
		t.Errorf("the snapshot was not deleted: %v", err)
	}
}

func TestOnlyAMissingMachineEndsASandboxAtRecovery(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	gone := w.create(bothy.SandboxCreate{})
	w.host.Machine(gone.ID).End(bothy.Exit{Reason: bothy.EndTerminated})
	eventually(t, "ended", func() bool { return w.get(gone.ID).State.Ended() })
	var failing atomic.Bool
	failing.Store(true)
	w.host.Adopting = func(_ context.Context, id string) error {
		if id == sb.ID && failing.Load() {
			return context.DeadlineExceeded
		}
		return nil
	}
	w.restart()
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Fatalf("after an adoption that timed out it is %s: %+v", got.State, got.Ended)
	}
	if w.host.Machine(sb.ID) == nil {
		t.Fatal("its machine was destroyed")
	}
	_, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}})
	wantCode(t, err, bothy.CodeSandboxNotReady)
	if e := bothy.AsError(err); e.RetryAfter == 0 || !strings.Contains(e.Detail, "restarted") {
		t.Errorf("using it meanwhile fails with %v", err)
	}
	w.wantEvent(sb.ID, bothy.EventSandboxUnattached)
	failing.Store(false)
	w.clock.pass(2 * time.Second)
	if _, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}}); err != nil {
		t.Errorf("after the next attempt: %v", err)
	}
	if n, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); err != nil {
		t.Error(n, err)
	}
}

func TestAnUnattachedSandboxCanEnd(t *testing.T) {
	for _, by := range []string{"its owner", "its time-out", "its machine's end"} {
		t.Run(by, func(t *testing.T) {
			w := newWorld(t)
			sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(300)})
			w.host.Adopting = func(context.Context, string) error { return errors.New("not now") }
			w.restart()
			want := bothy.EndTerminated
			switch by {
			case "its owner":
				if err := w.Terminate(w.me(), sb.ID); err != nil {
					t.Fatal(err)
				}
			case "its time-out":
				want = bothy.EndTimeout
				w.clock.pass(300 * time.Second)
			default:
				want = bothy.EndHostRestart
				w.host.Machine(sb.ID).End(bothy.Exit{})
				w.host.Adopting = nil
				w.clock.pass(time.Second)
			}
			if got := w.get(sb.ID); !got.State.Ended() || got.Ended.Reason != want {
				t.Errorf("it is %s: %+v", got.State, got.Ended)
			}
			if w.host.Machine(sb.ID) != nil {
				t.Error("its machine is still running")
			}
			w.host.Adopting = nil
			w.clock.pass(time.Minute)
			if w.Live() != 0 {
				t.Error("it was adopted after its end")
			}
		})
	}
}

func TestAnEngineThatFailsToOpenLosesNothing(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	var fails atomic.Int32
	w.change = func(o *lifecycle.Options) {
		e := o.Engines["fake"]
		o.Engines = map[string]bothy.Engine{}
		o.Openers = map[string]engines.Opener{"fake": func(context.Context) (bothy.Engine, error) {
			if fails.Add(1) == 1 {
				return nil, errors.New("not now")
			}
			return e, nil
		}}
	}
	w.restart()
	if got := w.get(sb.ID); got.State != bothy.StateRunning || w.host.Machine(sb.ID) == nil {
		t.Fatalf("it is %s: %+v", got.State, got.Ended)
	}
	_, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}})
	wantCode(t, err, bothy.CodeSandboxNotReady)
	// A request for the engine by name opens it, which must not destroy these machines.
	other, err := w.Create(w.me(), bothy.SandboxCreate{Engine: fake.Name})
	if err != nil || w.host.Machine(sb.ID) == nil {
		t.Fatal(other, err)
	}
	w.clock.pass(2 * time.Second)
	if _, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}}); err != nil {
		t.Error(err)
	}
}

// A server that dies around a pause leaves no snapshots behind.
func TestCrashesAroundAPauseLeaveNothing(t *testing.T) {
	for _, at := range []string{"lifecycle.freeze", "lifecycle.sealed", "lifecycle.asleep", "lifecycle.ended"} {
		t.Run(at, func(t *testing.T) {
			w := newWorld(t)
			sb := w.create(bothy.SandboxCreate{})
			pauseOnce(t, w, sb.ID)
			if _, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{}); err != nil {
				t.Fatal(err)
			}
			dieAt(t, w, at, func() {
				if at == "lifecycle.ended" {
					_ = w.Terminate(w.me(), sb.ID)
					return
				}
				_, _ = w.Pause(w.me(), sb.ID, bothy.PauseOptions{})
			})
			got := w.get(sb.ID)
			all, err := w.store.AllSnapshots(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			// It may be paused in a snapshot, or have been resumed from one.
			most := 1
			if got.State.Ended() {
				most = 0
			}
			if len(all) > most {
				t.Errorf("it is %s, but there are %d snapshots", got.State, len(all))
			}
			if got.State == bothy.StatePaused {
				if _, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func pauseOnce(t *testing.T, w *world, id string) {
	t.Helper()
	if _, err := w.Pause(w.me(), id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
}

// dieAt runs do until the server reaches a step. The server does nothing after that, and another
// replaces it.
func dieAt(t *testing.T, w *world, step string, do func()) {
	t.Helper()
	died := make(chan struct{})
	var once sync.Once
	remove := failpoint.Set(step, func() error {
		once.Do(func() { close(died) })
		select {}
	})
	defer remove()
	go do()
	select {
	case <-died:
	case <-time.After(time.Minute):
		t.Fatalf("the step %s was not reached", step)
	}
	remove()
	w.open()
	if _, err := w.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAFullDiskRefusesStartsAtOnce(t *testing.T) {
	var full atomic.Bool
	w := newWorld(t)
	w.change = func(o *lifecycle.Options) { o.DiskFull = full.Load }
	w.restart()
	sb := w.create(bothy.SandboxCreate{})
	pauseOnce(t, w, sb.ID)
	began := 0
	w.host.FailStart = func(string) error { began++; return nil }
	full.Store(true)
	_, err := w.Create(w.me(), bothy.SandboxCreate{})
	wantCode(t, err, bothy.CodeDiskFull)
	_, err = w.Resume(w.me(), sb.ID, bothy.ResumeOptions{})
	wantCode(t, err, bothy.CodeDiskFull)
	_, err = w.Fork(w.me(), sb.ID, bothy.ForkRequest{})
	wantCode(t, err, bothy.CodeDiskFull)
	if began > 0 || len(w.Problems()) != 1 {
		t.Errorf("%d machines were started; problems: %q", began, w.Problems())
	}
	// A disk that fills up during a start is reported as well.
	full.Store(false)
	w.host.FailStart = func(string) error { return fmt.Errorf("write: %w", syscall.ENOSPC) }
	_, err = w.Create(w.me(), bothy.SandboxCreate{})
	wantCode(t, err, bothy.CodeDiskFull)
}
