package lifecycle_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/lifecycle"
)

const every = 60 * time.Second

// checkpointed creates a sandbox with checkpoints and a running process.
func (w *world) checkpointed(req bothy.SandboxCreate) (id string) {
	w.t.Helper()
	req.CheckpointSeconds = int(every / time.Second)
	id = w.create(req).ID
	w.guests.last().setStats(bothy.GuestStats{Processes: 2})
	return id
}

// checkpoints lists the checkpoints, and whether each is in the object storage.
func (w *world) checkpoints() (ids []string) {
	w.t.Helper()
	page, err := w.Snapshots(w.me(), bothy.SnapshotFilter{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range page.Items {
		if n.Checkpoint {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// wantCheckpoints checks the number of checkpoints, and that the sandbox's row lists them.
func (w *world) wantCheckpoints(when, id string, want int) []string {
	w.t.Helper()
	ids := w.checkpoints()
	if len(ids) != want {
		w.t.Fatalf("%s there are %d checkpoints, want %d", when, len(ids), want)
	}
	if row := w.row(id); !slices.Equal(row.Checkpoints, ids) {
		w.t.Fatalf("%s the row has the checkpoints %v, but there are %v", when, row.Checkpoints, ids)
	}
	return ids
}

// A sandbox that comes from a host whose clock is ahead does not go without checkpoints until then.
func TestCheckpointsAfterAHostWhoseClockIsAhead(t *testing.T) {
	w := newWorld(t)
	id := w.checkpointed(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	w.clock.pass(every)
	first := w.wantCheckpoints("at first", id, 1)
	row := w.row(id)
	later := row.CheckpointAt.Add(3 * time.Hour)
	row.CheckpointAt = &later
	if err := w.store.PutSandbox(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.guests.last().setStats(bothy.GuestStats{Processes: 2})
	w.clock.pass(every)
	if now := w.wantCheckpoints("then", id, 1); now[0] == first[0] {
		t.Error("no checkpoint was taken")
	}
}

func TestCheckpointsAreTaken(t *testing.T) {
	w := newWorld(t)
	id := w.checkpointed(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	w.clock.pass(every - time.Second)
	w.wantCheckpoints("before the time", id, 0)
	w.clock.pass(time.Second)
	first := w.wantCheckpoints("then", id, 1)
	if sb := w.get(id); sb.State != bothy.StateRunning || sb.CheckpointAt == nil || !sb.CheckpointAt.Equal(w.clock.Now()) || sb.CheckpointSeconds != 60 {
		t.Errorf("the sandbox has checkpoint_at %v and checkpoint_seconds %d", sb.CheckpointAt, sb.CheckpointSeconds)
	}
	w.clock.pass(every)
	if second := w.wantCheckpoints("later", id, 1); second[0] == first[0] {
		t.Error("the old checkpoint was kept instead of the new one")
	}
	if e := append(w.events(id, bothy.EventSnapshotCreated), w.events(id, bothy.EventSnapshotDeleted)...); len(e) != 0 {
		t.Errorf("checkpoints are events: %v", e)
	}
	// A restarted server continues the schedule.
	w.clock.pass(every / 2)
	w.restart()
	w.guests.last().setStats(bothy.GuestStats{Processes: 2})
	before := w.wantCheckpoints("after a restart", id, 1)
	w.clock.pass(every/2 - time.Second)
	if now := w.wantCheckpoints("before it is due again", id, 1); now[0] != before[0] {
		t.Error("a checkpoint was taken too early")
	}
	w.clock.pass(time.Second)
	if now := w.wantCheckpoints("when it is due again", id, 1); now[0] == before[0] {
		t.Error("no checkpoint was taken after a restart")
	}
	if c := w.Checkpoints(); c.Taken != 1 || c.Failed != 0 || c.Oldest != 0 {
		t.Errorf("the counters are %+v", c)
	}
	// Checkpoints are turned off and on.
	for i, n := range []int{0, 30} {
		if _, err := w.Update(w.me(), id, bothy.SandboxUpdate{CheckpointSeconds: &n}); err != nil {
			t.Fatal(err)
		}
		last := w.wantCheckpoints("after a change", id, 1)
		w.clock.pass(30 * time.Second)
		if now := w.wantCheckpoints("a while after a change", id, 1); (now[0] != last[0]) != (i == 1) {
			t.Errorf("with checkpoint_seconds %d another checkpoint was taken: %v", n, now[0] != last[0])
		}
	}
	// Users can use a checkpoint like other snapshots until the next one replaces it.
	from := w.create(bothy.SandboxCreate{SnapshotID: w.checkpoints()[0]})
	if from.ParentSnapshotID != w.checkpoints()[0] || from.CheckpointSeconds != 30 {
		t.Errorf("a sandbox from the checkpoint is %+v", from)
	}
	if err := w.Terminate(w.me(), id); err != nil {
		t.Fatal(err)
	}
	w.wantCheckpoints("after the end", from.ID, 0)
	for _, n := range []int{-1, 1, 9, 86401} {
		_, err := w.Create(w.me(), bothy.SandboxCreate{CheckpointSeconds: n})
		wantCode(t, err, bothy.CodeInvalid)
	}
}

// A sandbox that was not used since its last checkpoint gets no further one.
func TestAnUnusedSandboxGetsNoCheckpoint(t *testing.T) {
	w := newWorld(t)
	id := w.create(bothy.SandboxCreate{CheckpointSeconds: 60, TimeoutSeconds: seconds(0)}).ID // no process runs in it
	w.clock.pass(every)
	first := w.wantCheckpoints("at first", id, 1)
	for range 3 {
		w.clock.pass(every)
	}
	if now := w.wantCheckpoints("at rest", id, 1); now[0] != first[0] {
		t.Error("another checkpoint was taken of an unused sandbox")
	}
	if c := w.Checkpoints(); c.Taken != 1 || c.Skipped != 3 || c.Oldest != 0 {
		t.Errorf("the counters are %+v", c)
	}
	if _, err := w.Exec(w.me(), id, bothy.ExecRequest{Command: bothy.Command{Line: "x"}}); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(every)
	second := w.wantCheckpoints("after a command", id, 1)
	if second[0] == first[0] {
		t.Error("no checkpoint was taken after a command")
	}
	// A checkpoint that its owner deletes is replaced.
	if err := w.DeleteSnapshot(w.me(), second[0]); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(every)
	w.wantCheckpoints("after it was deleted", id, 1)
}

// A command that runs while a checkpoint is taken may change files after it.
func TestACommandDuringACheckpointIsInTheNext(t *testing.T) {
	w := newWorld(t)
	id := w.create(bothy.SandboxCreate{CheckpointSeconds: 60, TimeoutSeconds: seconds(0)}).ID
	w.host.Snapshotting = func(context.Context, string) error {
		_, err := w.Exec(w.me(), id, bothy.ExecRequest{Command: bothy.Command{Line: "x"}}) // commands do not wait for checkpoints
		return err
	}
	w.clock.pass(every)
	first := w.wantCheckpoints("at first", id, 1)
	w.host.Snapshotting = nil
	w.clock.pass(every)
	if now := w.wantCheckpoints("then", id, 1); now[0] == first[0] {
		t.Error("no checkpoint has what a command did during the previous one")
	}
}

// Failures are counted, reported with decreasing frequency, and followed by another attempt.
func TestACheckpointFails(t *testing.T) {
	w := newWorld(t)
	id := w.checkpointed(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	w.host.Snapshotting = func(context.Context, string) error { return errors.New("no") }
	for range 5 {
		w.clock.pass(every)
	}
	e := w.events(id, bothy.EventSandboxCheckpointFailed)
	if len(e) != 3 || e[0]["failures"] != "1" || e[2]["failures"] != "4" || !strings.Contains(e[0]["detail"], "could not be written") {
		t.Errorf("the events are %v", e)
	}
	if c := w.Checkpoints(); c.Taken != 0 || c.Failed != 5 || c.Oldest != 5*every {
		t.Errorf("the counters are %+v", c)
	}
	if sb := w.get(id); sb.State != bothy.StateRunning {
		t.Errorf("it is %s", sb.State)
	}
	w.host.Snapshotting = nil
	w.clock.pass(every)
	w.wantCheckpoints("once it works again", id, 1)
}

// A checkpoint that fails slowly waits longer each time, and does not keep others from their turn.
func TestACheckpointThatFailsSlowlyWaits(t *testing.T) {
	w := newWorld(t)
	w.checkpointed(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	const took = 5 * time.Minute
	w.host.Snapshotting = func(context.Context, string) error {
		w.clock.pass(took)
		return errors.New("no")
	}
	w.clock.pass(every)
	for i, wait := range []time.Duration{2 * took, 4 * took, 8 * took, time.Hour, time.Hour} {
		w.clock.pass(wait - time.Second)
		if c := w.Checkpoints(); c.Failed != int64(i+1) {
			t.Fatalf("just before %s after failure %d there were %d", wait, i+1, c.Failed)
		}
		w.clock.pass(time.Second)
		if c := w.Checkpoints(); c.Failed != int64(i+2) {
			t.Fatalf("%s after failure %d there were %d", wait, i+1, c.Failed)
		}
	}
}

// A pause deletes the checkpoint, which is older than the pause's snapshot. After a resume there are new
// ones. A rollback deletes those of the abandoned state.
func TestCheckpointsSurvivePausesAndRollbacks(t *testing.T) {
	w := newWorld(t)
	id := w.checkpointed(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	w.clock.pass(every)
	w.wantCheckpoints("at first", id, 1)
	if _, err := w.Pause(w.me(), id, bothy.PauseOptions{Name: "then"}); err != nil {
		t.Fatal(err)
	}
	then := w.row(id).SnapshotID
	w.wantCheckpoints("while it is paused", id, 0)
	w.clock.pass(every)
	w.wantCheckpoints("a while later", id, 0)
	if _, err := w.Resume(w.me(), id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	w.guests.last().setStats(bothy.GuestStats{Processes: 2})
	w.clock.pass(every)
	w.wantCheckpoints("after the resume", id, 1)
	if _, err := w.Rollback(w.me(), id, then); err != nil {
		t.Fatal(err)
	}
	w.wantCheckpoints("after a rollback", id, 0)
	w.guests.last().setStats(bothy.GuestStats{Processes: 2})
	w.clock.pass(every)
	point := w.wantCheckpoints("after that", id, 1)[0]
	if w.row(id).HeadSnapshotID != then {
		t.Error("a checkpoint is in the sandbox's history")
	}
	// Rolling back to a checkpoint keeps it.
	if _, err := w.Rollback(w.me(), id, point); err != nil {
		t.Fatal(err)
	}
	w.guests.last().setStats(bothy.GuestStats{Processes: 2})
	w.restart()
	w.clock.pass(every)
	if _, err := w.Service.Snapshot(w.me(), point); err != nil {
		t.Errorf("the checkpoint that it was rolled back to: %v", err)
	}
}

// A power failure of a host loses only what happened since the checkpoint.
func TestACheckpointBoundsTheLoss(t *testing.T) {
	w := newWorld(t)
	id := w.checkpointed(bothy.SandboxCreate{TimeoutSeconds: seconds(0), OnHostLoss: bothy.HostLossResume})
	fails := w.checkpointed(bothy.SandboxCreate{TimeoutSeconds: seconds(0), OnHostLoss: bothy.HostLossFail})
	if _, err := w.CreateSnapshot(w.me(), id, bothy.SnapshotCreate{Name: "own"}); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(every)
	point := w.row(id).Checkpoints[0]
	w.clock.pass(20 * time.Second)
	w.reboot(21 * time.Second)
	w.resumeDue(room(true))
	sb := w.get(id)
	if sb.State != bothy.StateRunning || sb.HostLoss == nil || sb.HostLoss.SnapshotID != point || sb.HostLoss.AgeSeconds != 41 {
		t.Fatalf("it is %s: %+v", sb.State, sb.HostLoss)
	}
	if sb.CheckpointSeconds != 60 || sb.Resumed.SnapshotID != point {
		t.Errorf("it was resumed as %+v", sb.Resumed)
	}
	if sb := w.get(fails); sb.State != bothy.StateFailed || len(w.checkpoints()) != 1 {
		t.Errorf("a sandbox with on_host_loss fail is %s, and the checkpoints are %v", sb.State, w.checkpoints())
	}
	w.guests.last().setStats(bothy.GuestStats{Processes: 2})
	w.clock.pass(every)
	row := w.row(id)
	if len(row.Checkpoints) != 1 || row.Checkpoints[0] == point || row.HeadSnapshotID != point {
		t.Errorf("after the resume the row has the checkpoints %v and the head %s", row.Checkpoints, row.HeadSnapshotID)
	}
	if _, err := w.Pause(w.me(), id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if left := w.checkpoints(); len(left) != 0 {
		t.Errorf("after a pause the checkpoints are %v", left)
	}
}

// With object storage, the last checkpoint there remains until the next one is uploaded.
func TestACheckpointStaysUntilTheNextIsStored(t *testing.T) {
	w, far := remoteWorld(t)
	id := w.checkpointed(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	w.clock.pass(every)
	first := w.wantCheckpoints("at first", id, 1)[0]
	w.clock.pass(every)
	w.wantCheckpoints("while the first one is on its way", id, 1)
	far().arrive(first)
	w.clock.pass(every)
	both := w.wantCheckpoints("once it is there", id, 2)
	if both[1] != first {
		t.Errorf("the checkpoints are %v, want %s too", both, first)
	}
	far().arrive(both[0])
	eventually(t, "the older one goes", func() bool { return slices.Equal(w.checkpoints(), both[:1]) && len(w.row(id).Checkpoints) == 1 })
	// While the storage is unavailable, a recent checkpoint is kept on disk and the stored one stays.
	w.clock.pass(every)
	stuck := w.wantCheckpoints("then", id, 2)[0]
	for range 6 {
		w.clock.pass(every)
	}
	if now := w.wantCheckpoints("while the storage is unavailable", id, 2); now[0] == stuck || now[1] != both[0] {
		t.Errorf("the checkpoints are %v, where %s is stored and %s is being uploaded", now, both[0], stuck)
	}
	// It is deleted once the pause's snapshot is uploaded.
	n, err := w.Pause(w.me(), id, bothy.PauseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.wantCheckpoints("once it is paused", id, 2)
	far().arrive(n.ID)
	eventually(t, "both go", func() bool { return len(w.checkpoints()) == 0 && len(w.row(id).Checkpoints) == 0 })
	for _, e := range w.events(id, bothy.EventSnapshotStored) {
		if e["snapshot_id"] != n.ID {
			t.Errorf("a checkpoint is an event: %v", e)
		}
	}
}

// Only the newest checkpoint counts against the quota, and none once the sandbox is paused.
func TestCheckpointsAndTheQuota(t *testing.T) {
	w := newWorld(t)
	id := w.checkpointed(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	w.clock.pass(every)
	n, err := w.Service.Snapshot(w.me(), w.wantCheckpoints("at first", id, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	w.retention = lifecycle.Retention{ProjectBytes: n.SizeBytes + n.SizeBytes/2, PerSandbox: 1}
	w.restart()
	w.guests.last().setStats(bothy.GuestStats{Processes: 2})
	w.clock.pass(every)
	if now := w.wantCheckpoints("with a quota for one", id, 1); now[0] == n.ID {
		t.Errorf("no checkpoint was taken: %v", w.events(id, bothy.EventSandboxCheckpointFailed))
	}
	if _, err := w.CreateSnapshot(w.me(), id, bothy.SnapshotCreate{}); bothy.ErrorCode(err) != bothy.CodeQuota {
		t.Errorf("a snapshot beyond the quota: %v", err)
	}
	if _, err := w.Pause(w.me(), id, bothy.PauseOptions{}); err != nil {
		t.Errorf("a pause whose snapshot replaces a checkpoint: %v", err)
	}
}

// Checkpoints that a killed server left behind are found and deleted.
func TestOrphanedCheckpointsAreDeleted(t *testing.T) {
	w := newWorld(t)
	id := w.checkpointed(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	w.clock.pass(every)
	w.wantCheckpoints("at first", id, 1)
	row := w.row(id)
	row.Checkpoints = nil
	if err := w.store.PutSandbox(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	// While the database is in doubt, the checkpoint may belong to a row.
	w.change = func(o *lifecycle.Options) { o.Doubtful = func() bool { return true } }
	w.restart()
	if left := w.checkpoints(); len(left) != 1 {
		t.Errorf("with a database in doubt the checkpoints are %v", left)
	}
	w.change = nil
	w.restart()
	w.wantCheckpoints("that no row has", id, 0)
}

// A sandbox that is moved takes its checkpoint along, and gets new ones on the other host.
func TestCheckpointsMoveWithTheirSandbox(t *testing.T) {
	p := newPair(t)
	id := p.one.checkpointed(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	p.one.clock.pass(every)
	first := p.one.row(id).Checkpoints
	p.two.clock.pass(every)
	if len(first) != 1 {
		t.Fatalf("the checkpoints are %v", first)
	}
	if refused, err := p.move(id); err != nil || refused {
		t.Fatal(refused, err)
	}
	n, err := p.two.Service.Snapshot(p.two.me(), first[0])
	if err != nil || !n.Checkpoint {
		t.Fatalf("after the move: %+v %v", n, err)
	}
	from := p.two.create(bothy.SandboxCreate{SnapshotID: first[0]})
	if from.ParentSnapshotID != first[0] {
		t.Errorf("a sandbox from the checkpoint is %+v", from)
	}
	if err := p.two.Terminate(p.two.me(), from.ID); err != nil { // it would have checkpoints too
		t.Fatal(err)
	}
	if c := p.one.Checkpoints(); c.Oldest != 0 {
		t.Errorf("the old host still counts it: %+v", c)
	}
	p.two.clock.pass(every)
	now := p.one.row(id).Checkpoints
	if len(now) != 1 || now[0] == first[0] || p.two.Checkpoints().Taken != 1 {
		t.Errorf("on the new host the checkpoints are %v, after %v: %+v", now, first, p.two.Checkpoints())
	}
	if _, err := p.two.Service.Snapshot(p.two.me(), first[0]); bothy.ErrorCode(err) != bothy.CodeSnapshotNotFound {
		t.Errorf("the previous checkpoint: %v", err)
	}
}

// A sandbox gets no checkpoint during a move, since it would be sent while the sandbox is frozen. If the
// move fails, it gets one at once.
func TestASandboxThatMovesGetsNoCheckpoint(t *testing.T) {
	p := newPair(t)
	id := p.one.checkpointed(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	p.one.clock.pass(every)
	wantTaken := func(when string, want int64) {
		t.Helper()
		if c := p.one.Checkpoints(); c.Taken != want || c.Failed != 0 {
			t.Errorf("%s the counters are %+v, want %d", when, c, want)
		}
	}
	wantTaken("at first", 1)
	p.sending = func() {
		p.one.clock.pass(every)
		wantTaken("while it is sent", 1)
	}
	restore := failpoint.Set("move.stopped", func() error { return errors.New("no") })
	defer restore()
	if _, err := p.move(id); err == nil {
		t.Fatal("the move succeeded")
	}
	restore()
	p.one.clock.pass(lifecycle.CheckpointSoon)
	wantTaken("where it stays", 2)
	p.sending = nil
	if refused, err := p.move(id); err != nil || refused {
		t.Fatal(refused, err)
	}
}

// A checkpoint that was not uploaded and is lost with its host leaves no record: neither after its sandbox
// is resumed from the previous one, nor after the sandbox has ended.
func TestALostCheckpointIsForgotten(t *testing.T) {
	for _, resumes := range []bool{true, false} {
		w, far := remoteWorld(t)
		on := bothy.HostLossPause
		if resumes {
			on = bothy.HostLossResume
		}
		id := w.checkpointed(bothy.SandboxCreate{TimeoutSeconds: seconds(0), OnHostLoss: on})
		w.clock.pass(every)
		stored := w.wantCheckpoints("at first", id, 1)[0]
		far().arrive(stored)
		w.clock.pass(every)
		lost := w.wantCheckpoints("then", id, 2)[0]
		if err := os.RemoveAll(filepath.Join(w.dir, "snapshots", lost)); err != nil {
			t.Fatal(err)
		}
		w.reboot(time.Second)
		if sb := w.get(id); sb.State != bothy.StatePaused || w.row(id).SnapshotID != stored {
			t.Fatalf("it is %s in %s, want %s", sb.State, w.row(id).SnapshotID, stored)
		}
		if resumes {
			w.resumeDue(room(true))
			if left := w.checkpoints(); !slices.Equal(left, []string{stored}) {
				t.Errorf("after the resume the checkpoints are %v, want %s", left, stored)
			}
		}
		if err := w.Terminate(w.me(), id); err != nil {
			t.Fatal(err)
		}
		if left := w.checkpoints(); len(left) != 0 {
			t.Errorf("after its end the checkpoints are %v", left)
		}
	}
}
