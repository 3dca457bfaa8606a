package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

func TestSandboxesSurviveTheServer(t *testing.T) {
	w := newWorld(t)
	kept := w.create(bothy.SandboxCreate{Network: &bothy.Network{Mode: bothy.NetworkOpen}})
	overdue := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(60)})
	gone := w.create(bothy.SandboxCreate{})
	key := w.guests.all[0].identity().Key

	w.closeServer()
	m, err := w.engine.Adopt(t.Context(), gone.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Destroy(t.Context())
	w.clock.pass(2 * time.Minute)
	w.open()
	n, err := w.Recover(t.Context())
	if err != nil || n != 1 {
		t.Fatalf("recovered %d, %v", n, err)
	}
	if sb := w.get(kept.ID); sb.State != bothy.StateRunning || sb.Network.Mode != bothy.NetworkOpen {
		t.Errorf("kept: %+v", sb)
	}
	if g := w.guests.last(); g.firstKey != key {
		t.Error("the guest is called with a wrong key")
	}
	if _, err := w.Exec(w.me(), kept.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}}); err != nil {
		t.Errorf("use after the restart: %v", err)
	}
	if sb := w.get(overdue.ID); sb.State != bothy.StateStopped || sb.Ended.Reason != bothy.EndTimeout {
		t.Errorf("overdue: %+v", sb)
	}
	if sb := w.get(gone.ID); sb.State != bothy.StateFailed || sb.Ended.Reason != bothy.EndHostRestart {
		t.Errorf("gone: %+v", sb)
	}
	// The machine of the overdue sandbox was removed.
	if _, err := w.engine.Adopt(t.Context(), overdue.ID, nil); bothy.ErrorCode(err) != bothy.CodeNotFound {
		t.Errorf("the overdue machine is still running: %v", err)
	}
	// Its time-out is unchanged.
	w.clock.pass(9 * time.Minute)
	if sb := w.get(kept.ID); sb.State != bothy.StateStopped {
		t.Errorf("kept beyond its time-out: %+v", sb)
	}
}

func TestInterruptedOperationsAreFinishedOrUndone(t *testing.T) {
	w := newWorld(t)
	for state, want := range map[bothy.State]bothy.State{
		bothy.StateStarting: bothy.StateFailed, bothy.StateStopping: bothy.StateStopped,
		bothy.StateResuming: bothy.StatePaused, bothy.StatePausing: bothy.StateRunning,
	} {
		sb := w.create(bothy.SandboxCreate{})
		stored, err := w.store.Sandbox(t.Context(), sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		stored.State = state
		if err := w.store.PutSandbox(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
		w.restart()
		if got := w.get(sb.ID); got.State != want {
			t.Errorf("%s became %s, want %s", state, got.State, want)
		}
		_, err = w.engine.Adopt(t.Context(), sb.ID, nil)
		if lives := err == nil; lives != (want == bothy.StateRunning) {
			t.Errorf("after %s the machine is running: %v", state, lives)
		}
	}
}

// If a server dies while it ends a sandbox, the next one knows the reason.
func TestTheReasonOfAnInterruptedStopIsKept(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(60)})
	stop := failpoint.Set("lifecycle.move.stopped", func() error { return errors.New("the server died") })
	t.Cleanup(stop)
	w.clock.pass(time.Minute)
	eventually(t, "stopping", func() bool { return w.row(sb.ID).State == bothy.StateStopping })
	stop()
	w.restart()
	if got := w.get(sb.ID); got.State != bothy.StateStopped || got.Ended.Reason != bothy.EndTimeout || !strings.Contains(got.Ended.Detail, "60 seconds") {
		t.Errorf("it is %s: %+v", got.State, got.Ended)
	}
}

// A sandbox that should be paused at its time-out is not lost if the server was down then.
func TestOverdueSandboxIsPausedAfterARestart(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(60), OnTimeout: bothy.TimeoutPause})
	w.closeServer()
	w.clock.pass(2 * time.Minute)
	w.open()
	if _, err := w.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(time.Second)
	eventually(t, "paused", func() bool { return w.get(sb.ID).State == bothy.StatePaused })
}

// If a server dies between changing the disk and changing the records of snapshots, the next one makes
// them agree.
func TestRecordsOfSnapshotsMatchTheDisk(t *testing.T) {
	died := errors.New("the server died")
	listed := func(w *world, ctx context.Context) string {
		p, err := w.Snapshots(ctx, bothy.SnapshotFilter{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, n := range p.Items {
			names = append(names, n.Name)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	var deleted *bothy.Snapshot
	for _, name := range []string{"kept", "deleted"} {
		n, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		deleted = n
	}
	var archive bytes.Buffer
	if err := w.ExportSnapshot(w.me(), deleted.ID, "", &archive); err != nil {
		t.Fatal(err)
	}
	stop := failpoint.Set("lifecycle.removed", func() error { return died })
	err := w.DeleteSnapshot(w.me(), deleted.ID)
	stop()
	if !errors.Is(err, died) {
		t.Fatal(err)
	}
	w.restart()
	if got := listed(w, w.me()); got != "kept" {
		t.Errorf("after an interrupted deletion the list is %q", got)
	}

	// The sandbox of an imported snapshot is unknown here and belongs to another owner.
	other, theirs := newWorld(t), as(t, "theirs")
	if _, err := other.ImportSnapshot(theirs, "arrived", "", &archive); err != nil {
		t.Fatal(err)
	}
	all, err := other.store.AllSnapshots(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if err := other.store.DeleteSnapshot(t.Context(), all[0].ID); err != nil {
		t.Fatal(err)
	}
	other.restart()
	if mine, got := listed(other, other.me()), listed(other, theirs); mine != "" || got != "arrived" {
		t.Errorf("after an interrupted import the lists are %q and %q", mine, got)
	}
}
