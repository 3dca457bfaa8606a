package postgres_test

import (
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/postgres"
)

// What is to be resumed is found by the host that has it, and by all where none does. A host
// that cannot resume it gives it to all of them, with its snapshots, and another takes it.
func TestASandboxIsReleased(t *testing.T) {
	url, ctx := database(t), t.Context()
	one, two := member(t, url, "one"), member(t, url, "two")
	defer one.Close()
	defer two.Close()
	now := time.Now().UTC()
	sb := sandbox("sbx1", bothy.StatePaused)
	sb.HostLoss = &bothy.HostLoss{Host: "dead", SnapshotID: "snp1", NextResumeAt: &now}
	must(t, one.PutSandbox(ctx, sb))
	must(t, one.PutSnapshot(ctx, &bothy.Snapshot{ID: "snp1", SandboxID: "sbx1", ProjectID: "p", CreatedAt: now}))
	wantDue := func(when string, s *postgres.Store, by time.Time, want int) {
		t.Helper()
		// The database's clock is read a moment later than this host's.
		if due, err := s.SandboxesToResume(ctx, by.Add(time.Second), 10); err != nil || len(due) != want {
			t.Errorf("%s: %d, %v", when, len(due), err)
		}
	}
	wantDue("its own", one, now, 1)
	wantDue("another's", two, now, 0)
	if err := two.ReleaseSandbox(ctx, sb); bothy.ErrorCode(err) != bothy.CodeMisdirected {
		t.Errorf("another host's sandbox was let go: %v", err)
	}
	later := now.Add(time.Minute)
	sb.HostLoss.ResumeAttempts, sb.HostLoss.NextResumeAt = 1, &later
	must(t, one.ReleaseSandbox(ctx, sb))
	if o, err := two.SandboxHost(ctx, "sbx1"); err != nil || o.Host != "" {
		t.Errorf("its host is %+v, %v", o, err)
	}
	wantDue("before its time", two, now, 0)
	wantDue("nobody's", two, later, 1)
	wantDue("nobody's, for the one that had it", one, later, 1)
	if err := one.PutSandbox(ctx, sb); bothy.ErrorCode(err) != bothy.CodeMisdirected {
		t.Errorf("the host that let it go changed it: %v", err)
	}
	if ok, err := two.ClaimSandbox(ctx, "sbx1"); err != nil || !ok {
		t.Fatal(ok, err)
	}
	wantDue("taken by another", one, later, 0)
	wantDue("taken", two, later, 1)
	if own, err := two.OwnSnapshots(ctx); err != nil || len(own) != 1 {
		t.Errorf("its snapshots: %v %v", own, err)
	}
	if got, err := two.Sandbox(ctx, "sbx1"); err != nil || got.HostLoss.ResumeAttempts != 1 {
		t.Errorf("%+v %v", got.HostLoss, err)
	}
	sb.StopResuming()
	must(t, two.PutSandbox(ctx, current(t, two, sb)))
	wantDue("called off", two, later, 0)
}

// One that has ended is taken from a host that is dead, and from no other.
func TestASandboxThatHasEndedIsTakenFromADeadHost(t *testing.T) {
	url, ctx := database(t), t.Context()
	dead, two := crashed(t, url, "dead"), member(t, url, "two")
	defer two.Close()
	for id, state := range map[string]bothy.State{"sbx1": bothy.StateFailed, "sbx2": bothy.StatePaused} {
		must(t, dead.PutSandbox(ctx, sandbox(id, state)))
	}
	claim := func(id string, want bool) {
		t.Helper()
		if ok, err := two.ClaimSandbox(ctx, id); err != nil || ok != want {
			t.Errorf("%s was claimed: %v %v", id, ok, err)
		}
	}
	claim("sbx1", false)
	keep := func(*store.Sandbox, string, func(string) *bothy.Snapshot) (bool, bothy.Event) {
		return false, bothy.Event{}
	}
	if done, err := two.GiveUpHosts(ctx, 0, keep); err != nil || len(done) != 1 {
		t.Fatal(done, err)
	}
	claim("sbx1", true)
	claim("sbx1", false)
	claim("sbx2", false)
	must(t, two.PutSandbox(ctx, current(t, two, sandbox("sbx1", bothy.StateRunning))))
}

// One that waits for a dead host can be claimed in order to end it, and then it is not that
// host's when it is back.
func TestASandboxOfADeadHostIsClaimedToEndIt(t *testing.T) {
	url, ctx := database(t), t.Context()
	dead, two := crashed(t, url, "dead"), member(t, url, "two")
	defer two.Close()
	must(t, dead.PutSandbox(ctx, sandbox("sbx1", bothy.StatePaused)))
	claim := func(want bool) {
		t.Helper()
		if ok, err := two.ClaimDead(ctx, "sbx1"); err != nil || ok != want {
			t.Errorf("it was claimed: %v %v", ok, err)
		}
	}
	claim(false)
	keep := func(*store.Sandbox, string, func(string) *bothy.Snapshot) (bool, bothy.Event) {
		return false, bothy.Event{}
	}
	if done, err := two.GiveUpHosts(ctx, 0, keep); err != nil || len(done) != 1 {
		t.Fatal(done, err)
	}
	claim(true)
	claim(false)
	must(t, two.PutSandbox(ctx, current(t, two, sandbox("sbx1", bothy.StateStopped))))
	must(t, two.RemoveHost(ctx, "dead"))
	dead.Close()
	back := member(t, url, "dead")
	defer back.Close()
	if err := back.PutSandbox(ctx, sandbox("sbx1", bothy.StateRunning)); bothy.ErrorCode(err) != bothy.CodeMisdirected {
		t.Errorf("its host changed it when it was back: %v", err)
	}
}
