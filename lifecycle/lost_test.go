package lifecycle_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/store"
)

// events lists the data of a sandbox's events of a type.
func (w *world) events(id, typ string) (list []map[string]string) {
	w.t.Helper()
	err := w.Events(w.me(), bothy.EventFilter{SandboxID: id}, func(e bothy.Event) error {
		if e.Type == typ {
			list = append(list, e.Data)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// reboot simulates a power failure: no machine is left when the server is back.
func (w *world) reboot(off time.Duration) {
	w.t.Helper()
	w.closeServer()
	for _, id := range w.host.IDs() {
		m, err := w.engine.Adopt(w.t.Context(), id, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		_ = m.Destroy(w.t.Context())
	}
	w.clock.pass(off)
	w.open()
	if _, err := w.Recover(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// room returns the options of a server without other hosts, with room or without.
func room(has bool) lifecycle.LostOptions {
	return lifecycle.LostOptions{MayTake: func() bool { return has }}
}

// resumeDue makes the server check once for sandboxes to resume.
func (w *world) resumeDue(o lifecycle.LostOptions) {
	w.t.Helper()
	if err := w.ResumeDue(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// After a power failure, running sandboxes follow their on_host_loss.
func TestAHostLosesItsPower(t *testing.T) {
	w := newWorld(t)
	want := map[bothy.OnHostLoss]bothy.State{"": bothy.StatePaused, bothy.HostLossPause: bothy.StatePaused, bothy.HostLossResume: bothy.StateRunning, bothy.HostLossFail: bothy.StateFailed}
	ids, snapshots := map[bothy.OnHostLoss]string{}, map[bothy.OnHostLoss]string{}
	for on := range want {
		ids[on] = w.create(bothy.SandboxCreate{OnHostLoss: on}).ID
		n, err := w.CreateSnapshot(w.me(), ids[on], bothy.SnapshotCreate{})
		if err != nil {
			t.Fatal(err)
		}
		snapshots[on] = n.ID
	}
	bare := w.create(bothy.SandboxCreate{OnHostLoss: bothy.HostLossResume})
	w.reboot(41 * time.Second)
	if sb := w.get(ids[bothy.HostLossResume]); sb.State != bothy.StatePaused || sb.HostLoss == nil || sb.HostLoss.NextResumeAt == nil {
		t.Errorf("before it is resumed: %s %+v", sb.State, sb.HostLoss)
	}
	w.resumeDue(room(true))
	for on, state := range want {
		sb := w.get(ids[on])
		if sb.State != state {
			t.Errorf("with on_host_loss %q it is %s, want %s: %+v", on, sb.State, state, sb.Ended)
			continue
		}
		if state == bothy.StateFailed {
			if sb.Ended.Reason != bothy.EndHostRestart || sb.HostLoss != nil {
				t.Errorf("it ended with %+v, %+v", sb.Ended, sb.HostLoss)
			}
			continue
		}
		if l := sb.HostLoss; l == nil || l.SnapshotID != snapshots[on] || l.AgeSeconds != 41 || l.NextResumeAt != nil || l.ResumeAttempts != 0 {
			t.Errorf("with on_host_loss %q the sandbox has %+v", on, l)
		}
		if e := w.events(sb.ID, bothy.EventSandboxHostLost); len(e) != 1 || e[0]["snapshot_id"] != snapshots[on] || e[0]["age_seconds"] != "41" {
			t.Errorf("with on_host_loss %q the events are %v", on, e)
		}
		resumed := w.events(sb.ID, bothy.EventSandboxResumed)
		if (len(resumed) == 1) != (state == bothy.StateRunning) {
			t.Errorf("with on_host_loss %q the resumes are %v", on, resumed)
		} else if len(resumed) == 1 && (resumed[0]["after"] != bothy.EventSandboxHostLost || resumed[0]["age_seconds"] != "41") {
			t.Errorf("the event of the resume has %v", resumed[0])
		}
	}
	if sb := w.get(bare.ID); sb.State != bothy.StateFailed || sb.Ended.Reason != bothy.EndHostRestart {
		t.Errorf("a sandbox without a snapshot is %s: %+v", sb.State, sb.Ended)
	}
	if _, err := w.Exec(w.me(), ids[bothy.HostLossResume], bothy.ExecRequest{Command: bothy.Command{Line: "x"}}); err != nil {
		t.Errorf("using the resumed sandbox: %v", err)
	}
	if _, err := w.Resume(w.me(), ids[bothy.HostLossPause], bothy.ResumeOptions{}); err != nil {
		t.Errorf("resuming the paused sandbox: %v", err)
	}
	if got := w.Lost(); got != (lifecycle.LostCounts{Resumed: 1}) {
		t.Errorf("the counters are %+v", got)
	}
}

// A snapshot of the owner remains after a sandbox that lost its host was paused in it.
func TestAnOwnersSnapshotStaysAfterALoss(t *testing.T) {
	for what, over := range map[string]func(w *world, id string) error{
		"an end": func(w *world, id string) error { return w.Terminate(w.me(), id) },
		"an end of the next run": func(w *world, id string) error {
			_, err := w.Resume(w.me(), id, bothy.ResumeOptions{})
			return errors.Join(err, w.Terminate(w.me(), id))
		},
		"the next pause": func(w *world, id string) error {
			_, err := w.Resume(w.me(), id, bothy.ResumeOptions{})
			_, perr := w.Pause(w.me(), id, bothy.PauseOptions{})
			return errors.Join(err, perr)
		},
		"a pause that another server finishes": func(w *world, id string) error {
			if _, err := w.Resume(w.me(), id, bothy.ResumeOptions{}); err != nil {
				return err
			}
			own := w.row(id).SnapshotID
			_, err := w.Pause(w.me(), id, bothy.PauseOptions{})
			row := w.row(id)
			row.EarlierSnapshotID = own
			err = errors.Join(err, w.store.PutSandbox(w.t.Context(), row))
			w.restart()
			return err
		},
		"an end that another server finishes": func(w *world, id string) error {
			row := w.row(id)
			row.State, row.Ended = bothy.StateStopped, &bothy.Ended{Reason: bothy.EndTerminated, At: w.clock.Now()}
			err := w.store.PutSandbox(w.t.Context(), row)
			w.restart()
			return err
		},
	} {
		w := newWorld(t)
		id := w.create(bothy.SandboxCreate{}).ID
		n, err := w.CreateSnapshot(w.me(), id, bothy.SnapshotCreate{})
		if err != nil {
			t.Fatal(err)
		}
		w.reboot(time.Second)
		if got := w.row(id).SnapshotID; got != n.ID {
			t.Fatalf("it is paused in %q", got)
		}
		if err := over(w, id); err != nil {
			t.Fatal(what, err)
		}
		if _, err := w.Service.Snapshot(w.me(), n.ID); err != nil {
			t.Errorf("after %s: %v", what, err)
		}
	}
}

// If the owner has deleted later snapshots, the sandbox is paused in the snapshot of its last pause,
// which the next pause replaces as usual.
func TestALossAfterASnapshotIsDeleted(t *testing.T) {
	w := newWorld(t)
	id := w.create(bothy.SandboxCreate{}).ID
	asleep, err := w.Pause(w.me(), id, bothy.PauseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Resume(w.me(), id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	n, err := w.CreateSnapshot(w.me(), id, bothy.SnapshotCreate{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.DeleteSnapshot(w.me(), n.ID); err != nil {
		t.Fatal(err)
	}
	w.reboot(time.Second)
	if sb := w.get(id); sb.State != bothy.StatePaused || w.row(id).SnapshotID != asleep.ID {
		t.Fatalf("it is %s in %q, want %s: %+v", sb.State, w.row(id).SnapshotID, asleep.ID, sb.Ended)
	}
	if err := w.Terminate(w.me(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Service.Snapshot(w.me(), asleep.ID); bothy.ErrorCode(err) != bothy.CodeSnapshotNotFound {
		t.Errorf("the pause's snapshot after the end of the sandbox: %v", err)
	}
}

// lostWorld is a world with a sandbox that is to be resumed.
func lostWorld(t *testing.T) (w *world, id string) {
	w = newWorld(t)
	id = w.create(bothy.SandboxCreate{OnHostLoss: bothy.HostLossResume}).ID
	if _, err := w.CreateSnapshot(w.me(), id, bothy.SnapshotCreate{}); err != nil {
		t.Fatal(err)
	}
	w.reboot(time.Second)
	return w, id
}

// A sandbox that cannot be resumed reports why. Attempts are limited, and a call can still resume it.
func TestAResumeAfterALossIsTriedAgain(t *testing.T) {
	w, id := lostWorld(t)
	defer failpoint.Set("lifecycle.started", func() error { return bothy.Errorf(bothy.CodeCapacity, "there is no memory") })()
	for i := 1; i <= lifecycle.ResumeAttempts; i++ {
		w.resumeDue(room(true))
		sb := w.get(id)
		if l := sb.HostLoss; sb.State != bothy.StatePaused || l.ResumeAttempts != i || l.Problem != "there is no memory" || (l.NextResumeAt == nil) != (i == lifecycle.ResumeAttempts) {
			t.Fatalf("after %d attempts it is %s, %+v", i, sb.State, l)
		}
		w.resumeDue(room(true)) // not due yet
		if got := w.get(id).HostLoss.ResumeAttempts; got != i {
			t.Fatalf("it was tried too early: %d attempts", got)
		}
		w.clock.pass(lifecycle.ResumePause(i))
	}
	w.resumeDue(room(true))
	e := w.events(id, bothy.EventSandboxNotResumed)
	if len(e) != lifecycle.ResumeAttempts {
		t.Fatalf("%d events: %v", len(e), e)
	}
	for i, data := range e {
		if last := i == len(e)-1; data["attempts"] != strconv.Itoa(i+1) || (data["next_resume_at"] == "") != last {
			t.Errorf("event %d has %v", i, data)
		}
	}
	if got := w.Lost(); got != (lifecycle.LostCounts{Failed: lifecycle.ResumeAttempts, GivenUp: 1}) {
		t.Errorf("the counters are %+v", got)
	}
	failpoint.Set("lifecycle.started", nil)
	if sb, err := w.Resume(w.me(), id, bothy.ResumeOptions{}); err != nil || sb.State != bothy.StateRunning {
		t.Errorf("resumed by a call: %+v %v", sb, err)
	}
}

// A host without room leaves a sandbox to other hosts for a while and then reports the lack of room.
func TestAResumeAfterALossFindsNoRoom(t *testing.T) {
	w, id := lostWorld(t)
	w.resumeDue(room(false))
	if l := w.get(id).HostLoss; l.ResumeAttempts != 0 {
		t.Errorf("it was counted as an attempt at once: %+v", l)
	}
	w.clock.pass(time.Minute)
	w.resumeDue(room(false))
	if sb := w.get(id); sb.State != bothy.StatePaused || sb.HostLoss.ResumeAttempts != 1 || sb.HostLoss.Problem != "no host had room for it" {
		t.Errorf("it is %s, %+v", sb.State, sb.HostLoss)
	}
	// A host that could not resume it leaves it to others too.
	unfit := room(true)
	unfit.Fits = func(context.Context, string) bool { return false }
	w.resumeDue(unfit)
	if sb := w.get(id); sb.State != bothy.StatePaused || sb.HostLoss.ResumeAttempts != 1 {
		t.Errorf("after a failed resume it is %s, %+v", sb.State, sb.HostLoss)
	}
	w.clock.pass(time.Minute)
	w.resumeDue(room(true))
	if sb := w.get(id); sb.State != bothy.StateRunning || sb.HostLoss.NextResumeAt != nil {
		t.Errorf("with room it is %s, %+v", sb.State, sb.HostLoss)
	}
}

// Changes by the owner in the meantime win.
func TestAResumeAfterALossIsCalledOff(t *testing.T) {
	for what, call := range map[string]func(w *world, id string) error{
		"another choice": func(w *world, id string) error {
			on := bothy.HostLossPause
			_, err := w.Update(w.me(), id, bothy.SandboxUpdate{OnHostLoss: &on})
			return err
		},
		"a resume": func(w *world, id string) error { _, err := w.Resume(w.me(), id, bothy.ResumeOptions{}); return err },
		"an end":   func(w *world, id string) error { return w.Terminate(w.me(), id) },
		"a resume and sleep": func(w *world, id string) error {
			_, err := w.Resume(w.me(), id, bothy.ResumeOptions{})
			_, perr := w.Pause(w.me(), id, bothy.PauseOptions{})
			return errors.Join(err, perr)
		},
	} {
		w, id := lostWorld(t)
		if err := call(w, id); err != nil {
			t.Fatal(what, err)
		}
		before := w.get(id)
		w.clock.pass(time.Second)
		w.resumeDue(room(true))
		if sb := w.get(id); sb.State != before.State || w.Lost() != (lifecycle.LostCounts{}) {
			t.Errorf("after %s it is %s, %+v", what, sb.State, w.Lost())
		}
	}
	w := newWorld(t)
	on := bothy.OnHostLoss("burn")
	_, err := w.Create(w.me(), bothy.SandboxCreate{OnHostLoss: on})
	wantCode(t, err, bothy.CodeInvalid)
	sb := w.create(bothy.SandboxCreate{})
	_, err = w.Update(w.me(), sb.ID, bothy.SandboxUpdate{OnHostLoss: &on})
	wantCode(t, err, bothy.CodeInvalid)
	if got := w.get(sb.ID); got.OnHostLoss != bothy.HostLossPause {
		t.Errorf("it is %q by default", got.OnHostLoss)
	}
}

// someHosts fakes the shared database for one host.
type someHosts struct {
	shared
	claims, mine bool
	released     []*store.Sandbox
}

func (h *someHosts) Self() string                                       { return "one" }
func (h *someHosts) ClaimSandbox(context.Context, string) (bool, error) { return h.claims, nil }

func (h *someHosts) SandboxHost(context.Context, string) (store.Ownership, error) {
	if h.mine {
		return store.Ownership{Host: "one"}, nil
	}
	return store.Ownership{Host: "two"}, nil
}

func (h *someHosts) ReleaseSandbox(_ context.Context, sb *store.Sandbox) error {
	h.released = append(h.released, sb)
	return nil
}

// The host that claims a sandbox resumes it. If that fails, all hosts that have the snapshot may try
// again.
func TestOneOfSeveralHostsResumesWhatIsLost(t *testing.T) {
	for what, c := range map[string]struct {
		hosts  *someHosts
		fails  bool
		want   bothy.State
		let    int
		counts lifecycle.LostCounts
	}{
		"another takes it":        {&someHosts{}, false, bothy.StatePaused, 0, lifecycle.LostCounts{}},
		"this one takes it":       {&someHosts{claims: true}, false, bothy.StateRunning, 0, lifecycle.LostCounts{Resumed: 1}},
		"it is this one's":        {&someHosts{mine: true}, false, bothy.StateRunning, 0, lifecycle.LostCounts{Resumed: 1}},
		"this one cannot wake it": {&someHosts{claims: true}, true, bothy.StatePaused, 1, lifecycle.LostCounts{Failed: 1}},
	} {
		w, far := remoteWorld(t)
		change := w.change
		w.change = func(o *lifecycle.Options) {
			change(o)
			c.hosts.Store, o.Cluster = o.Store, c.hosts
		}
		w.restart()
		id := w.create(bothy.SandboxCreate{OnHostLoss: bothy.HostLossResume}).ID
		n, err := w.CreateSnapshot(w.me(), id, bothy.SnapshotCreate{})
		if err != nil {
			t.Fatal(err)
		}
		far().arrive(n.ID)
		w.reboot(time.Second)
		if c.fails {
			defer failpoint.Set("lifecycle.started", func() error { return errors.New("no") })()
		}
		w.resumeDue(lifecycle.LostOptions{MayTake: func() bool { return true }})
		failpoint.Set("lifecycle.started", nil)
		if sb := w.get(id); sb.State != c.want || len(c.hosts.released) != c.let || w.Lost() != c.counts {
			t.Errorf("%s: it is %s, %d were released, %+v", what, sb.State, len(c.hosts.released), w.Lost())
		}
		for _, sb := range c.hosts.released {
			if sb.State != bothy.StatePaused || sb.ResumeAt() == nil || sb.HostLoss.ResumeAttempts != 1 {
				t.Errorf("%s: it was released as %+v", what, sb.HostLoss)
			}
		}
	}
}

// A sandbox is claimed from its dead host only if the caller may end it.
func TestOnlyTheOwnerClaimsFromADeadHost(t *testing.T) {
	w := newWorld(t)
	claimed := 0
	w.change = func(o *lifecycle.Options) {
		asShared(o)
		o.Cluster = withDead{o.Cluster, &claimed}
	}
	w.restart()
	id := w.create(bothy.SandboxCreate{}).ID
	w.pause(id)
	wantCode(t, w.Terminate(as(t, "others"), id), bothy.CodeSandboxNotFound)
	if claimed != 0 {
		t.Error("a request of another project claimed it")
	}
	if err := w.Terminate(w.me(), id); err != nil || claimed != 1 {
		t.Errorf("%v, and it was claimed %d times", err, claimed)
	}
	if sb := w.get(id); sb.State != bothy.StateStopped {
		t.Errorf("it is %s", sb.State)
	}
}

// What a host lost is told, and chosen, by the ages of snapshots, not by the clocks of the hosts that took
// them.
func TestAHostLosesSnapshotsOfHostsWithOtherClocks(t *testing.T) {
	w := newWorld(t)
	id := w.checkpointed(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	kept, err := w.CreateSnapshot(w.me(), id, bothy.SnapshotCreate{})
	if err != nil {
		t.Fatal(err)
	}
	w.clock.pass(every)
	checkpoint := w.wantCheckpoints("then", id, 1)[0]
	// The host that took the kept one has a clock that is three hours ahead, and that of the checkpoint
	// one that is three hours behind.
	for id, off := range map[string]time.Duration{kept.ID: 3 * time.Hour, checkpoint: -3 * time.Hour} {
		n, err := w.store.Snapshot(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		n.CreatedAt = n.CreatedAt.Add(off)
		if err := w.store.PutSnapshot(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	w.change = func(o *lifecycle.Options) {
		asShared(o)
		o.Cluster = timed{o.Cluster, func(n *bothy.Snapshot) {
			n.CreatedAt = n.CreatedAt.Add(map[string]time.Duration{kept.ID: -3 * time.Hour, checkpoint: 3 * time.Hour}[n.ID])
		}}
	}
	w.reboot(41 * time.Second)
	if sb := w.get(id); sb.State != bothy.StatePaused || sb.HostLoss == nil || sb.HostLoss.SnapshotID != checkpoint || sb.HostLoss.AgeSeconds != 41 {
		t.Errorf("it is %s, %+v", sb.State, sb.HostLoss)
	}
	if e := w.events(id, bothy.EventSandboxHostLost); len(e) != 1 || e[0]["snapshot_id"] != checkpoint || e[0]["age_seconds"] != "41" {
		t.Errorf("the events say %v", e)
	}
}
