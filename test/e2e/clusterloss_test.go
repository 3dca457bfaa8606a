package e2e

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// The sandboxes of a host that dies follow their on_host_loss: they are resumed elsewhere at once,
// paused at their last snapshot in the object storage, or ended.
func TestAHostDiesWithItsSandboxes(t *testing.T) {
	t.Parallel()
	hosts, _ := newStoringHosts(t, "one", "two", "three")
	one, two, three := hosts[0], hosts[1], hosts[2]
	boxes := map[bothy.OnHostLoss][]*box{}
	was := map[string]string{}
	for _, on := range []bothy.OnHostLoss{bothy.HostLossPause, bothy.HostLossResume, bothy.HostLossResume, bothy.HostLossFail} {
		b := one.ownBox(t)
		if sb, err := one.Sandboxes.Update(t.Context(), b.id, bothy.SandboxUpdate{OnHostLoss: &on}); err != nil || sb.OnHostLoss != on {
			t.Fatalf("%+v %v", sb, err)
		}
		was[b.id] = b.counts()()
		b.write("/workspace/file", "then")
		if _, err := one.Snapshots.CreateSnapshot(t.Context(), b.id, bothy.SnapshotCreate{Wait: bothy.DurableStore}); err != nil {
			t.Fatal(err)
		}
		b.write("/workspace/file", "later")
		boxes[on] = append(boxes[on], b)
	}
	if err := one.Kill(); err != nil {
		t.Fatal(err)
	}
	died := time.Now()
	for i, b := range boxes[bothy.HostLossResume] {
		e := two.awaitEvent(t, b.id, bothy.EventSandboxResumed)
		age, err := strconv.Atoi(e.Data["age_seconds"])
		if err != nil || e.Data["after"] != bothy.EventSandboxHostLost || e.Data["kind"] != string(bothy.SnapshotMemory) {
			t.Errorf("the event of the resume has %v", e.Data)
		}
		on := b.at([]*server{two, three}[i%2])
		if got := on.sh("", "kill -0 $(cat /tmp/pid) && cat /tmp/pid"); got != was[b.id] {
			t.Errorf("the counting process is %q, and was %s", got, was[b.id])
		}
		t.Logf("a sandbox answers again %v after the death of its host, %d seconds older than it was when that was noticed", time.Since(died).Round(100*time.Millisecond), age)
		if got := on.read("/workspace/file"); got != "then" {
			t.Errorf("the file contains %q", got)
		}
		sb, err := three.Sandboxes.Get(t.Context(), b.id)
		if err != nil || sb.State != bothy.StateRunning || sb.HostLoss == nil || sb.HostLoss.Host != "one" || sb.HostLoss.NextResumeAt != nil {
			t.Errorf("%+v %v", sb.HostLoss, err)
		}
	}
	paused, failed := boxes[bothy.HostLossPause][0], boxes[bothy.HostLossFail][0]
	two.awaitHostLost(t, paused.id)
	if sb, err := two.Sandboxes.Get(t.Context(), paused.id); err != nil || sb.State != bothy.StatePaused || sb.HostLoss == nil || sb.HostLoss.NextResumeAt != nil {
		t.Errorf("%+v %v", sb, err)
	}
	if _, err := two.Snapshots.Resume(t.Context(), paused.id, bothy.ResumeOptions{}); err != nil {
		t.Error(err)
	} else if got := paused.at(three).read("/workspace/file"); got != "then" {
		t.Errorf("the file contains %q", got)
	}
	if sb, err := three.Sandboxes.Get(t.Context(), failed.id); err != nil || sb.State != bothy.StateFailed || sb.Ended.Reason != bothy.EndHostLost {
		t.Errorf("%+v %v", sb, err)
	}

	// A failed sandbox is restarted by one call, on any host, from its template.
	again, err := three.Sandboxes.Restart(t.Context(), failed.id)
	if err != nil || again.ID != failed.id || again.State != bothy.StateRunning || again.Ended != nil {
		t.Fatalf("%+v %v", again, err)
	}
	if got := failed.at(two).sh("", "ls /workspace"); got != "" {
		t.Errorf("a restarted sandbox has %q", got)
	}
	if _, err := two.Sandboxes.Restart(t.Context(), failed.id); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("a running sandbox was restarted: %v", err)
	}

	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*box{boxes[bothy.HostLossResume][0], boxes[bothy.HostLossResume][1], paused, failed} {
		if left := one.Processes(b.id); len(left) > 0 {
			t.Errorf("left of a sandbox that is on another host: %v", left)
		}
		b.usable()
	}
}

// A sandbox that cannot be resumed because no host has room reports that, and is resumed once one has.
func TestAHostDiesAndTheOthersAreFull(t *testing.T) {
	t.Parallel()
	hosts, _ := newStoringHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	b := one.ownBox(t)
	on := bothy.HostLossResume
	if _, err := one.Sandboxes.Update(t.Context(), b.id, bothy.SandboxUpdate{OnHostLoss: &on}); err != nil {
		t.Fatal(err)
	}
	b.write("/workspace/file", "then")
	if _, err := one.Snapshots.CreateSnapshot(t.Context(), b.id, bothy.SnapshotCreate{Wait: bothy.DurableStore}); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Hosts.UpdateHost(t.Context(), "two", bothy.HostUpdate{State: bothy.HostCordoned}); err != nil {
		t.Fatal(err)
	}
	if err := one.Kill(); err != nil {
		t.Fatal(err)
	}
	e := two.awaitEvent(t, b.id, bothy.EventSandboxNotResumed)
	if e.Data["attempts"] != "1" || e.Data["next_resume_at"] == "" || e.Data["detail"] != "no host had room for it" {
		t.Errorf("the event has %v", e.Data)
	}
	sb, err := two.Sandboxes.Get(t.Context(), b.id)
	if err != nil || sb.State != bothy.StatePaused || sb.HostLoss == nil || sb.HostLoss.ResumeAttempts == 0 || sb.HostLoss.Problem == "" {
		t.Errorf("%+v %v", sb, err)
	}
	if _, err := two.Hosts.UpdateHost(t.Context(), "two", bothy.HostUpdate{State: bothy.HostUp}); err != nil {
		t.Fatal(err)
	}
	two.awaitEvent(t, b.id, bothy.EventSandboxResumed)
	if got := b.at(two).read("/workspace/file"); got != "then" {
		t.Errorf("the file contains %q", got)
	}
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	b.usable()
}

// awaitCheckpoint waits until a checkpoint that began after now is in the object storage.
func (b *box) awaitCheckpoint() *bothy.Snapshot {
	b.Helper()
	seen := map[string]bool{}
	look := func() (found *bothy.Snapshot) {
		page, err := b.s.Snapshots.Snapshots(b.ctx, bothy.SnapshotFilter{SandboxID: b.id})
		if err != nil {
			b.Fatal(err)
		}
		for _, n := range page.Items {
			if n.Checkpoint && !seen[n.ID] && n.Durable == bothy.DurableStore {
				seen[n.ID], found = true, n
			}
		}
		return found
	}
	look()
	// The first new checkpoint may have begun before the call, but not the second.
	fresh := 0
	for deadline := time.Now().Add(hangs); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if n := look(); n != nil {
			if fresh++; fresh == 2 {
				return n
			}
		}
	}
	b.Fatalf("no checkpoint of sandbox %s reached the object storage", b.id)
	return nil
}

// Checkpoints limit how much is lost with a host, even for a sandbox that was moved, and do not delay
// commands.
func TestAHostDiesAndACheckpointIsLeft(t *testing.T) {
	t.Parallel()
	hosts, _ := newStoringHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	b := one.ownBox(t)
	seconds, on := bothy.MinCheckpointSeconds, bothy.HostLossResume
	if _, err := one.Sandboxes.Update(t.Context(), b.id, bothy.SandboxUpdate{CheckpointSeconds: &seconds, OnHostLoss: &on}); err != nil {
		t.Fatal(err)
	}
	pid := b.counts()()
	b.write("/workspace/file", "then")
	b.awaitCheckpoint()
	b.moveTo("two")
	b = b.at(two)
	b.write("/workspace/file", "moved")
	ctx, stop := context.WithCancel(t.Context())
	longest := make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		for ctx.Err() == nil {
			begun := time.Now()
			if _, err := two.Exec.Exec(ctx, b.id, bothy.ExecRequest{Command: bothy.Command{Line: "true"}}); err != nil && ctx.Err() == nil {
				t.Errorf("a command while checkpoints are taken: %v", err)
			}
			most = max(most, time.Since(begun))
		}
		longest <- most
	}()
	n := b.awaitCheckpoint()
	stop()
	t.Logf("the longest command took %v", <-longest)
	b.write("/workspace/file", "later")
	if err := two.Kill(); err != nil {
		t.Fatal(err)
	}
	died := time.Now()
	e := one.awaitEvent(t, b.id, bothy.EventSandboxResumed)
	b = b.at(one)
	if got := b.sh("", "kill -0 $(cat /tmp/pid) && cat /tmp/pid"); got != pid {
		t.Errorf("the counting process is %q, and was %s", got, pid)
	}
	t.Logf("it answers again %v after the death of its host, as it was %s seconds before that was noticed", time.Since(died).Round(100*time.Millisecond), e.Data["age_seconds"])
	if got := b.read("/workspace/file"); got != "moved" && got != "later" {
		t.Errorf("the file contains %q", got)
	}
	if lost := one.awaitHostLost(t, b.id); lost.Data["snapshot_id"] != e.Data["snapshot_id"] {
		t.Errorf("it was paused in %s and resumed from %s", lost.Data["snapshot_id"], e.Data["snapshot_id"])
	}
	if at, err := one.Snapshots.Snapshot(t.Context(), e.Data["snapshot_id"]); err != nil || !at.Checkpoint || at.CreatedAt.Before(n.CreatedAt) {
		t.Errorf("it was resumed from %+v, want %s of %v: %v", at, n.ID, n.CreatedAt, err)
	}
	// Checkpoints continue on the new host.
	b.awaitCheckpoint()
	if err := one.Sandboxes.Terminate(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	eventually(t, "of one that has ended no snapshot is left", func() bool {
		page, err := one.Snapshots.Snapshots(t.Context(), bothy.SnapshotFilter{SandboxID: b.id})
		return err == nil && len(page.Items) == 0
	})
}
