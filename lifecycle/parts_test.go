package lifecycle_test

import (
	"context"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle"
)

func TestARefusedCodeRequestIsNotActivity(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	theirs := as(t, "theirs")
	_, err := w.RunCode(theirs, sb.ID, bothy.CodeRequest{})
	wantCode(t, err, bothy.CodeSandboxNotFound)
	_, err = w.CreateContext(theirs, sb.ID, bothy.CodeContextCreate{})
	wantCode(t, err, bothy.CodeSandboxNotFound)
	wantCode(t, w.RestartContext(theirs, sb.ID, "x"), bothy.CodeSandboxNotFound)
	if w.Ran(sb.ID) {
		t.Error("a stranger's call counts as the owner's")
	}
	_, _ = w.RunCode(w.me(), sb.ID, bothy.CodeRequest{})
	if !w.Ran(sb.ID) {
		t.Error("the owner's call does not count")
	}
}

// A copy has the network policy at the time of the copy: here the origin's network is turned off while
// the fork waits for the lock.
func TestACopyHasTheCurrentPolicy(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{Network: &bothy.Network{Mode: bothy.NetworkOpen}})
	entered, leave := make(chan struct{}), make(chan struct{})
	w.host.Snapshotting = func(context.Context, string) error {
		w.host.Snapshotting = nil
		close(entered)
		<-leave
		return nil
	}
	done := async(func() error {
		_, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{Name: "holds the lock"})
		return err
	})
	<-entered
	narrowed := async(func() error {
		_, err := w.Update(w.me(), sb.ID, bothy.SandboxUpdate{Network: &bothy.Network{Mode: bothy.NetworkOff}})
		return err
	})
	eventually(t, "the change waits", func() bool { return w.WaitingFor(sb.ID) == 2 })
	var copies []*bothy.Sandbox
	forked := async(func() (err error) { copies, err = w.Fork(w.me(), sb.ID, bothy.ForkRequest{}); return err })
	eventually(t, "the fork waits", func() bool { return w.WaitingFor(sb.ID) == 3 })
	close(leave)
	for _, c := range []<-chan error{done, narrowed, forked} {
		if err := <-c; err != nil {
			t.Fatal(err)
		}
	}
	if got := copies[0].Network.Mode; got != bothy.NetworkOff {
		t.Errorf("the copy's network is %s, but its origin's was off", got)
	}
}

func TestAChangeIsAtomic(t *testing.T) {
	m := newMetered(t, func(o *lifecycle.Options) {})
	sb := m.create(bothy.SandboxCreate{Budget: 5})
	amount := 50.0
	m.store.Close()
	_, err := m.Update(m.me(), sb.ID, bothy.SandboxUpdate{Budget: &amount, Network: &bothy.Network{Mode: bothy.NetworkOpen}})
	if err == nil {
		t.Fatal("the change succeeded without a store")
	}
	if got := m.gateways.last().policy.Mode; got == bothy.NetworkOpen {
		t.Error("the network was opened nevertheless")
	}
}

func TestFullSnapshotStorageDoesNotExtendATimeOut(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(60), OnTimeout: bothy.TimeoutPause})
	other := w.create(bothy.SandboxCreate{})
	if _, err := w.CreateSnapshot(w.me(), other.ID, bothy.SnapshotCreate{Name: "all that there may be"}); err != nil {
		t.Fatal(err)
	}
	w.retention = lifecycle.Retention{ProjectBytes: 1}
	w.restart()
	_, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{})
	wantCode(t, err, bothy.CodeQuota)
	w.clock.pass(time.Minute)
	if got := w.get(sb.ID); got.State != bothy.StatePaused {
		t.Errorf("after its time-out it is %s", got.State)
	}
	// Nor can more such sandboxes be started.
	_, err = w.Create(w.me(), bothy.SandboxCreate{OnTimeout: bothy.TimeoutPause})
	wantCode(t, err, bothy.CodeQuota)
	pause := bothy.TimeoutPause
	_, err = w.Update(w.me(), other.ID, bothy.SandboxUpdate{OnTimeout: &pause})
	wantCode(t, err, bothy.CodeQuota)
	w.create(bothy.SandboxCreate{})
}
