package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/postgres"
	"github.com/bothy-dev/bothy/store/storetest"
)

// member opens a database as one of the hosts that share it.
func member(t testing.TB, url, name string, opts ...postgres.Option) *postgres.Store {
	t.Helper()
	return open(t, url, append([]postgres.Option{postgres.WithMember(postgres.Member{Name: name, Address: name + ".example:7710", Labels: map[string]string{"zone": name}}),
		postgres.WithHome("home of " + name), postgres.WithHolder("holder of " + name)}, opts...)...)
}

// crashed is a server that ends without a word: its lease is renewed no more.
func crashed(t testing.TB, url, name string) *postgres.Store {
	return member(t, url, name, postgres.WithLease(time.Nanosecond, time.Hour))
}

func TestSharedStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, now func() time.Time) storetest.Opener {
		url := database(t)
		return func() store.Store { return member(t, url, "one", postgres.WithNow(now)) }
	})
}

func sandbox(id string, st bothy.State) *store.Sandbox {
	return &store.Sandbox{Sandbox: bothy.Sandbox{ID: id, ProjectID: "p", State: st, CreatedAt: time.Now().UTC()}}
}

// current returns a sandbox with the version that its row has, if it has one.
func current(t testing.TB, s *postgres.Store, sb *store.Sandbox) *store.Sandbox {
	t.Helper()
	row, err := s.Sandbox(t.Context(), sb.ID)
	if bothy.ErrorCode(err) != bothy.CodeSandboxNotFound {
		must(t, err)
		sb.Version = row.Version
	}
	return sb
}

func TestOnlyTheOwnerChangesASandbox(t *testing.T) {
	url, ctx := database(t), t.Context()
	one, two := member(t, url, "one"), member(t, url, "two")
	defer one.Close()
	defer two.Close()
	must(t, one.PutSandbox(ctx, sandbox("sbx1", bothy.StateRunning)))
	if err := two.PutSandbox(ctx, sandbox("sbx1", bothy.StateStopped)); bothy.ErrorCode(err) != bothy.CodeMisdirected {
		t.Errorf("another host's change: %v", err)
	}
	if sb, err := two.Sandbox(ctx, "sbx1"); err != nil || sb.State != bothy.StateRunning {
		t.Errorf("afterwards: %+v %v", sb, err)
	}
	must(t, one.PutSandbox(ctx, current(t, one, sandbox("sbx1", bothy.StatePaused))))
	if own, err := two.OwnSandboxesInState(ctx, bothy.LiveStates...); err != nil || len(own) != 0 {
		t.Errorf("another host's own: %v %v", own, err)
	}
	if own, err := one.OwnSandboxesInState(ctx, bothy.LiveStates...); err != nil || len(own) != 1 {
		t.Errorf("its own: %v %v", own, err)
	}
	if ok, err := two.ClaimSandbox(ctx, "sbx1"); err != nil || ok {
		t.Errorf("a sandbox of a host that lives was claimed: %v %v", ok, err)
	}
	o, err := two.SandboxHost(ctx, "sbx1")
	if err != nil || o.Host != "one" || o.Address != "one.example:7710" || o.Dead || o.Sandbox != bothy.StatePaused {
		t.Errorf("its host: %+v %v", o, err)
	}
}

func TestSandboxesAreCountedByHost(t *testing.T) {
	url, ctx := database(t), t.Context()
	one, two := member(t, url, "one"), member(t, url, "two")
	defer one.Close()
	defer two.Close()
	must(t, one.PutSandbox(ctx, sandbox("sbx1", bothy.StateRunning)))
	must(t, one.PutSandbox(ctx, sandbox("sbx2", bothy.StateStarting)))
	must(t, one.PutSandbox(ctx, sandbox("sbx3", bothy.StatePaused)))
	must(t, two.PutSandbox(ctx, sandbox("sbx4", bothy.StateRunning)))
	for _, of := range []*postgres.Store{one, two} {
		if got, err := of.LiveByHost(ctx, "p"); err != nil || !maps.Equal(got, map[string]int{"one": 2, "two": 1}) {
			t.Errorf("by host: %v %v", got, err)
		}
	}
	if got, err := one.LiveByHost(ctx, "another"); err != nil || len(got) != 0 {
		t.Errorf("of another project: %v %v", got, err)
	}
}

func TestHostsOpenANewDatabaseAtOnce(t *testing.T) {
	url := database(t)
	var wg sync.WaitGroup
	for _, name := range []string{"one", "two", "three"} {
		wg.Go(func() {
			s, err := postgres.Open(t.Context(), url, postgres.WithMember(postgres.Member{Name: name, Address: name + ".example:7710"}),
				postgres.WithHome("home of "+name), postgres.WithHolder("holder of "+name))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			t.Cleanup(func() { s.Close() })
		})
	}
	wg.Wait()
}

func TestTwoHostsOfOneName(t *testing.T) {
	url := database(t)
	one := member(t, url, "one")
	defer one.Close()
	for what, opts := range map[string][]postgres.Option{
		"another home":         {postgres.WithHome("elsewhere")},
		"a copy of the home":   {postgres.WithHolder("a copy")},
		"a server of its kind": {},
	} {
		o := append([]postgres.Option{postgres.WithMember(postgres.Member{Name: "one"}), postgres.WithHome("home of one"), postgres.WithHolder("holder of one")}, opts...)
		if what == "a server of its kind" {
			o = []postgres.Option{postgres.WithHome("home of one")}
		}
		s, err := postgres.Open(t.Context(), url, o...)
		if bothy.ErrorCode(err) != bothy.CodeConflict {
			t.Errorf("%s: %v", what, err)
			if err == nil {
				s.Close()
			}
		}
		if what == "a server of its kind" && err != nil && !strings.Contains(err.Error(), "cluster.name is not set") {
			t.Errorf("a server that is no host: %v", err)
		}
		var waits bool
		if err := one.Sees(t.Context(), `SELECT until > clock_timestamp() FROM server_lease`, &waits); err != nil || waits {
			t.Errorf("%s: a host that was refused keeps the others waiting: %v %v", what, waits, err)
		}
	}
}

func TestHostsReadTheBudgetsOfEachOther(t *testing.T) {
	url, ctx := database(t), t.Context()
	one, two := member(t, url, "one"), member(t, url, "two")
	defer one.Close()
	defer two.Close()
	must(t, one.PutBudget(ctx, store.Budget{Kind: store.BudgetTree, ID: "a", Project: "p", Amount: 1}))
	must(t, one.PutBudget(ctx, store.Budget{Kind: store.BudgetTree, ID: "b", Project: "p", Amount: 2}))
	must(t, one.PutBudget(ctx, store.Budget{Kind: store.BudgetTree, ID: "other", Project: "p", Amount: 3}))
	must(t, one.PutBudget(ctx, store.Budget{Kind: store.BudgetProject, ID: "p", Project: "p", Amount: 4}))
	must(t, one.PutBudget(ctx, store.Budget{Kind: store.BudgetTree, ID: "b", Project: "p", Amount: 0}))
	if got, err := two.TreeBudgets(ctx, []string{"a", "b", "p"}); err != nil || !maps.Equal(got, map[string]float64{"a": 1}) {
		t.Errorf("%v %v", got, err)
	}
}

// Hosts whose clocks are hours apart agree on who lives: a lease is by the database's clock.
func TestLeasesAreByTheClockOfTheDatabase(t *testing.T) {
	url, ctx := database(t), t.Context()
	by := func(off time.Duration) postgres.Option {
		return postgres.WithNow(func() time.Time { return time.Now().Add(off) })
	}
	hosts := []*postgres.Store{member(t, url, "ahead", by(3*time.Hour)), member(t, url, "behind", by(-3*time.Hour))}
	for _, s := range hosts {
		defer s.Close()
		done, err := s.GiveUpHosts(ctx, time.Hour, nil)
		if err != nil || len(done) > 0 {
			t.Errorf("%s gives up %+v, %v", s.Self(), done, err)
		}
		all, err := s.Hosts(ctx)
		if err != nil || len(all) != 2 {
			t.Fatalf("%+v, %v", all, err)
		}
		for _, h := range all {
			if h.State != bothy.HostUp || h.LeaseSeconds > 15 || h.LeaseSeconds < -time.Hour.Seconds() {
				t.Errorf("to %s, %s is %s with %.0f s of its lease", s.Self(), h.Name, h.State, h.LeaseSeconds)
			}
		}
	}
}

// A host that comes under another name would not know its sandboxes, and the others would give
// them up. Without any it may be called anything.
func TestAHostWithTwoNames(t *testing.T) {
	url, ctx := database(t), t.Context()
	one := member(t, url, "one")
	must(t, one.PutSandbox(ctx, current(t, one, sandbox("sbx1", bothy.StatePaused))))
	one.Close()
	renamed := func() (*postgres.Store, error) {
		return postgres.Open(ctx, url, postgres.WithMember(postgres.Member{Name: "two"}), postgres.WithHome("home of one"), postgres.WithHolder("holder of one"))
	}
	s, err := renamed()
	if e := bothy.AsError(err); err == nil || e.Code != bothy.CodeConflict || !strings.Contains(e.Detail, "this host is one in the cluster and owns 1 sandboxes") || e.Hint == "" {
		t.Errorf("a host with another name: %v", err)
	}
	if err == nil {
		s.Close()
	}
	one = member(t, url, "one")
	must(t, one.PutSandbox(ctx, current(t, one, sandbox("sbx1", bothy.StateStopped))))
	one.Close()
	if s, err = renamed(); err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestASingleServerBecomesTheFirstHost(t *testing.T) {
	url, ctx := database(t), t.Context()
	single := open(t, url, postgres.WithHome("home of one"), postgres.WithHolder("holder of one"))
	must(t, single.PutSandbox(ctx, sandbox("sbx1", bothy.StatePaused)))
	must(t, single.PutSnapshot(ctx, &bothy.Snapshot{ID: "snp1", SandboxID: "sbx1", ProjectID: "p", CreatedAt: time.Now().UTC()}))
	single.Close()
	if _, err := postgres.Open(ctx, url, postgres.WithMember(postgres.Member{Name: "two"}), postgres.WithHome("home of two")); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Fatalf("a host took another server's database: %v", err)
	}
	one := member(t, url, "one")
	defer one.Close()
	own, err := one.OwnSandboxesInState(ctx, bothy.StatePaused)
	snapshots, serr := one.OwnSnapshots(ctx)
	if err != nil || serr != nil || len(own) != 1 || len(snapshots) != 1 {
		t.Errorf("its own: %v %v, %v %v", own, err, snapshots, serr)
	}
	must(t, one.PutSandbox(ctx, current(t, one, sandbox("sbx1", bothy.StateStopped))))
}

func TestADeadHostIsGivenUp(t *testing.T) {
	url, ctx := database(t), t.Context()
	dead, two := crashed(t, url, "dead"), member(t, url, "two")
	defer two.Close()
	for id, st := range map[string]bothy.State{"sbxp": bothy.StatePaused, "sbxk": bothy.StatePaused, "sbxr": bothy.StateRunning, "sbxe": bothy.StateStopped} {
		must(t, dead.PutSandbox(ctx, sandbox(id, st)))
	}
	must(t, dead.PutSnapshot(ctx, &bothy.Snapshot{ID: "snp1", SandboxID: "sbxp", ProjectID: "p", CreatedAt: time.Now().UTC()}))
	if ok, err := dead.TakeDuty(ctx, "webhooks"); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if ok, err := two.TakeDuty(ctx, "webhooks"); err != nil || ok {
		t.Errorf("a duty was taken from a host that nobody has given up: %v %v", ok, err)
	}
	if a, err := dead.ReserveAnswer(ctx, "p", "key", "f"); a != nil || err != nil {
		t.Fatal(a, err)
	}
	if a, err := dead.ReserveOnce(ctx, "p", "once", "f"); a != nil || err != nil {
		t.Fatal(a, err)
	}
	if a, err := two.ReserveOnce(ctx, "p", "once", "f"); err != nil || a == nil || a.Status != 0 || a.Unknown {
		t.Errorf("what another host works on: %+v %v", a, err)
	}
	if a, err := two.ReserveAnswer(ctx, "p", "key", "f"); err != nil || a == nil || a.Status != 0 {
		t.Errorf("a reservation that another host holds: %+v %v", a, err)
	}
	if done, err := two.GiveUpHosts(ctx, time.Hour, nil); err != nil || len(done) != 0 {
		t.Fatalf("within the grace: %v %v", done, err)
	}
	fate := func(sb *store.Sandbox, host string, snapshot func(string) *bothy.Snapshot) (bool, bothy.Event) {
		if host != "dead" {
			t.Errorf("the fate of a sandbox of %s", host)
		}
		switch sb.ID {
		case "sbxp":
			return snapshot("snp1") != nil && snapshot("snpnone") == nil, bothy.Event{}
		case "sbxr":
			sb.State, sb.Ended = bothy.StateFailed, &bothy.Ended{Reason: bothy.EndHostLost, At: time.Now().UTC()}
			return true, bothy.Event{Type: "sandbox.host_lost", SandboxID: sb.ID, ProjectID: "p", Time: time.Now().UTC()}
		}
		return false, bothy.Event{}
	}
	done, err := two.GiveUpHosts(ctx, 0, fate)
	if err != nil || len(done) != 1 || done[0].Freed != 1 || done[0].Kept != 1 || done[0].Ended != 1 {
		t.Fatalf("given up: %+v %v", done, err)
	}
	// The dead change nothing any more, also where they live.
	for what, err := range map[string]error{
		"its sandbox":   dead.PutSandbox(ctx, sandbox("sbxp", bothy.StateResuming)),
		"a new sandbox": dead.PutSandbox(ctx, sandbox("sbxn", bothy.StateStarting)),
		"an event":      dead.AddEvent(ctx, &bothy.Event{Type: "x", ProjectID: "p"}),
	} {
		if bothy.ErrorCode(err) != bothy.CodeStore {
			t.Errorf("%s, by the dead: %v", what, err)
		}
	}
	select {
	case <-dead.Lost():
	default:
		t.Error("the dead does not know")
	}
	if ok, err := two.ClaimSandbox(ctx, "sbxp"); err != nil || !ok {
		t.Errorf("claim: %v %v", ok, err)
	}
	must(t, two.PutSandbox(ctx, current(t, two, sandbox("sbxp", bothy.StateRunning))))
	if ok, err := two.ClaimSandbox(ctx, "sbxk"); err != nil || ok {
		t.Errorf("what waits for its host was claimed: %v %v", ok, err)
	}
	if events, err := two.Events(ctx, "p", 0, 10); err != nil || len(events) != 1 || events[0].SandboxID != "sbxr" {
		t.Errorf("events: %v %v", events, err)
	}
	if ok, err := two.TakeDuty(ctx, "webhooks"); err != nil || !ok {
		t.Errorf("its duty: %v %v", ok, err)
	}
	if a, err := two.ReserveAnswer(ctx, "p", "key", "f"); err != nil || a != nil {
		t.Errorf("its reservation: %+v %v", a, err)
	}
	if a, err := two.ReserveOnce(ctx, "p", "once", "f"); err != nil || a == nil || a.Status != 0 || !a.Unknown {
		t.Errorf("what it had begun: %+v %v", a, err)
	}
	if hosts, err := two.Hosts(ctx); err != nil || len(hosts) != 2 || hosts[0].State != bothy.HostDead || hosts[0].Sandboxes != 1 || hosts[1].Sandboxes != 1 || !hosts[1].Self {
		t.Errorf("hosts: %+v %v", hosts, err)
	}
	if err := two.RemoveHost(ctx, "dead"); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("a host that a sandbox waits for was removed: %v", err)
	}
	dead.Close()
	// When it is back, what waited for it is its own again, and nothing else.
	back := member(t, url, "dead")
	defer back.Close()
	must(t, back.PutSandbox(ctx, current(t, back, sandbox("sbxk", bothy.StateRunning))))
	if err := back.PutSandbox(ctx, sandbox("sbxp", bothy.StateStopped)); bothy.ErrorCode(err) != bothy.CodeMisdirected {
		t.Errorf("what was taken meanwhile: %v", err)
	}
}

func TestOneOfManyClaims(t *testing.T) {
	url, ctx := database(t), t.Context()
	dead, one, two := crashed(t, url, "dead"), member(t, url, "one"), member(t, url, "two")
	defer one.Close()
	defer two.Close()
	const n = 20
	for i := range n {
		must(t, dead.PutSandbox(ctx, sandbox(fmt.Sprint("sbx", i), bothy.StatePaused)))
	}
	free := func(*store.Sandbox, string, func(string) *bothy.Snapshot) (bool, bothy.Event) {
		return true, bothy.Event{}
	}
	// Both give it up at once; one of them does.
	var wg sync.WaitGroup
	var mu sync.Mutex
	gaveUp, won := 0, map[string]int{}
	for _, s := range []*postgres.Store{one, two} {
		wg.Go(func() {
			done, err := s.GiveUpHosts(ctx, 0, free)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			gaveUp += len(done)
		})
	}
	wg.Wait()
	if gaveUp != 1 {
		t.Errorf("the host was given up %d times", gaveUp)
	}
	for range 4 {
		for _, s := range []*postgres.Store{one, two} {
			wg.Go(func() {
				for i := range n {
					id := fmt.Sprint("sbx", i)
					if ok, err := s.ClaimSandbox(ctx, id); err != nil {
						t.Error(err)
					} else if ok {
						mu.Lock()
						won[id]++
						mu.Unlock()
					}
				}
			})
		}
	}
	wg.Wait()
	if len(won) != n {
		t.Errorf("%d of %d were claimed", len(won), n)
	}
	for id, times := range won {
		if times != 1 {
			t.Errorf("%s was claimed %d times", id, times)
		}
	}
	dead.Close()
}

func TestHostsShareTheAudit(t *testing.T) {
	url, ctx := database(t), t.Context()
	one, two := member(t, url, "one"), member(t, url, "two")
	defer one.Close()
	defer two.Close()
	line := func(id int64, hash string) []store.AuditLine {
		return []store.AuditLine{{ID: id, Hash: hash, Record: "{}", Time: time.Now()}}
	}
	must(t, one.AppendAudit(ctx, line(1, "a")))
	if err := two.AppendAudit(ctx, line(1, "b")); !errors.Is(err, store.ErrAuditMoved) {
		t.Errorf("a second first line: %v", err)
	}
	must(t, two.AppendAudit(ctx, line(2, "b")))
	must(t, one.AppendAudit(ctx, line(1, "a"))) // as when nobody knew whether it was made
	if ends, err := one.AuditEnds(ctx); err != nil || ends.LastID != 2 || ends.LastHash != "b" {
		t.Errorf("ends: %+v %v", ends, err)
	}
}

func TestHostTokensAreGoodOnce(t *testing.T) {
	url, ctx := database(t), t.Context()
	one := member(t, url, "one")
	defer one.Close()
	must(t, one.AddHostToken(ctx, "h", time.Hour))
	must(t, one.AddHostToken(ctx, "old", 0))
	for i, want := range []bool{true, false} {
		if ok, err := one.UseHostToken(ctx, "h"); err != nil || ok != want {
			t.Errorf("use %d: %v %v", i, ok, err)
		}
	}
	if ok, err := one.UseHostToken(ctx, "old"); err != nil || ok {
		t.Errorf("one that is too old: %v %v", ok, err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A sandbox goes from one host to another only under the attempt that is in its row, and only
// from the run of the server that began it.
func TestASandboxIsTaken(t *testing.T) {
	url, ctx := database(t), t.Context()
	one, two := member(t, url, "one"), member(t, url, "two")
	defer two.Close()
	sb := sandbox("sbx1", bothy.StatePausing)
	sb.Moving = "attempt"
	must(t, one.PutSandbox(ctx, sb))
	must(t, one.PutSnapshot(ctx, &bothy.Snapshot{ID: "snp1", SandboxID: "sbx1", ProjectID: "p", CreatedAt: time.Now().UTC()}))
	after := sandbox("sbx1", bothy.StateRunning)
	for what, c := range map[string]struct {
		from    string
		epoch   int64
		attempt string
		version int64
	}{
		"of another host": {"two", one.Epoch(), "attempt", 1}, "of another run": {"one", one.Epoch() + 1, "attempt", 1},
		"by another attempt": {"one", one.Epoch(), "earlier", 1}, "by none": {"one", one.Epoch(), "", 1},
		"as it was before": {"one", one.Epoch(), "attempt", 0},
	} {
		after.Moving, after.Version = c.attempt, c.version
		if ok, err := two.TakeSandbox(ctx, c.from, c.epoch, after); ok || err != nil {
			t.Errorf("a sandbox %s was taken: %v %v", what, ok, err)
		}
	}
	after.Moving, after.Version = "attempt", 1
	if ok, err := two.TakeSandbox(ctx, "one", one.Epoch(), after); !ok || err != nil || after.Version != 2 {
		t.Fatal(ok, err, after.Version)
	}
	if ok, err := two.TakeSandbox(ctx, "one", one.Epoch(), after); ok || err != nil {
		t.Errorf("it was taken twice: %v %v", ok, err)
	}
	own, err := two.OwnSandboxesInState(ctx, bothy.StateRunning)
	snapshots, serr := two.OwnSnapshots(ctx)
	if err != nil || serr != nil || len(own) != 1 || own[0].Moving != "" || len(snapshots) != 1 {
		t.Errorf("it has %+v %v, %v %v", own, err, snapshots, serr)
	}
	sb.Moving, sb.State = "", bothy.StateRunning
	if err := one.PutSandbox(ctx, sb); bothy.ErrorCode(err) != bothy.CodeMisdirected {
		t.Errorf("the first host took it back: %v", err)
	}
	one.Close()
}

// A host that drains until it is restarted is up when it has been.
func TestAWishThatEndsWithTheServer(t *testing.T) {
	url, ctx := database(t), t.Context()
	one := member(t, url, "one", postgres.WithLease(time.Minute, 10*time.Millisecond))
	state := func() bothy.HostState {
		all, err := one.Hosts(ctx)
		must(t, err)
		return all[0].State
	}
	for _, c := range []struct {
		u     bothy.HostUpdate
		after bothy.HostState
	}{
		{bothy.HostUpdate{State: bothy.HostDraining}, bothy.HostDraining},
		{bothy.HostUpdate{State: bothy.HostDraining, UntilRestart: true}, bothy.HostUp},
		{bothy.HostUpdate{State: bothy.HostCordoned}, bothy.HostCordoned},
	} {
		must(t, one.UpdateHost(ctx, "one", c.u))
		if got := state(); got != c.u.State || one.Wanted() != c.u.State {
			t.Errorf("%+v: it is %s, and knows of %s", c.u, got, one.Wanted())
		}
		one.Close()
		one = member(t, url, "one", postgres.WithLease(time.Minute, 10*time.Millisecond))
		if got := state(); got != c.after {
			t.Errorf("%+v: after a restart it is %s", c.u, got)
		}
	}
	one.Close()
}

// A database from an older backup does not know the hosts that joined since. They notice that
// they were not given up, and are not let in again.
func TestAnOlderDatabaseIsNoticed(t *testing.T) {
	url := database(t)
	one := member(t, url, "one", postgres.WithLease(time.Hour, 20*time.Millisecond))
	defer one.Close()
	pg.Exec(t, url, `UPDATE server_lease SET epoch = 0; UPDATE hosts SET epoch = 0`)
	<-one.Lost()
	if !one.Older() {
		t.Error("it takes itself for given up")
	}
	if err := one.PutSandbox(t.Context(), sandbox("sbx1", bothy.StateRunning)); bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("a change: %v", err)
	}
	s, err := postgres.Open(t.Context(), url, postgres.WithMember(postgres.Member{Name: "one"}), postgres.WithHome("home of one"),
		postgres.WithHolder("holder of one"), postgres.WithLastEpoch(one.Epoch()))
	if err == nil {
		s.Close()
	}
	if bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("it joins again: %v", err)
	}
	var counted int64
	if err := one.Sees(t.Context(), `SELECT epoch FROM server_lease`, &counted); err != nil || counted != 0 {
		t.Errorf("one that was refused was counted: %d %v", counted, err)
	}
}

// One that was given up is told from that.
func TestTheGivenUpIsNotOlder(t *testing.T) {
	url := database(t)
	one := crashed(t, url, "one")
	defer one.Close()
	two := member(t, url, "two")
	defer two.Close()
	if done, err := two.GiveUpHosts(t.Context(), 0, freed); err != nil || len(done) != 1 {
		t.Fatal(done, err)
	}
	if err := one.PutSandbox(t.Context(), sandbox("sbx1", bothy.StateRunning)); bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("a change: %v", err)
	}
	<-one.Lost()
	if one.Older() {
		t.Error("it takes the database for an older one")
	}
}

// A host that changes nothing finds out by its next renewal that it was given up.
func TestARenewalFindsThatTheHostIsGivenUp(t *testing.T) {
	url := database(t)
	one := member(t, url, "one", postgres.WithLease(time.Nanosecond, 20*time.Millisecond))
	defer one.Close()
	two := member(t, url, "two")
	defer two.Close()
	if done, err := two.GiveUpHosts(t.Context(), 0, freed); err != nil || len(done) != 1 {
		t.Fatal(done, err)
	}
	select {
	case <-one.Lost():
	case <-time.After(time.Minute):
		t.Error("it keeps its lease")
	}
}

// Starts on several hosts at once come one after another for a project with a bound, so that
// the bounds are never passed, and never kept from anybody who is within them.
func TestStartsOfAllHostsStayWithinBounds(t *testing.T) {
	url, ctx := database(t), t.Context()
	var hosts []*postgres.Store
	for _, name := range []string{"one", "two", "three"} {
		hosts = append(hosts, member(t, url, name))
		defer hosts[len(hosts)-1].Close()
	}
	const most, each = 7, 12
	start := func(prefix string, b store.StartBounds, state bothy.State) (made []string, refused []*store.PlanExceeded) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for h, host := range hosts {
			for i := range each {
				wg.Go(func() {
					sb := sandbox(fmt.Sprintf("%s-%d-%d", prefix, h, i), state)
					sb.ProjectID = prefix
					err := host.StartSandbox(ctx, current(t, host, sb), b)
					var beyond *store.PlanExceeded
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						made = append(made, sb.ID)
					case errors.As(err, &beyond):
						refused = append(refused, beyond)
					default:
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		return made, refused
	}

	made, refused := start("count", store.StartBounds{Sandboxes: new(most)}, bothy.StateStarting)
	if len(made) != most || len(refused) != len(hosts)*each-most {
		t.Fatalf("%d were made and %d refused, and %d may run", len(made), len(refused), most)
	}
	for _, r := range refused {
		if r.Live != most || r.Wait != 0 {
			t.Errorf("refused with %+v", *r)
		}
	}
	stored, err := hosts[0].SandboxesInState(ctx, bothy.StateStarting)
	if err != nil || len(stored) != most {
		t.Errorf("%d are stored: %v", len(stored), err)
	}
	// One that ends, on whichever host, makes room for one.
	for _, host := range hosts {
		sb := sandbox(made[0], bothy.StateStopped)
		sb.ProjectID = "count"
		if err := host.PutSandbox(ctx, current(t, host, sb)); err != nil && bothy.ErrorCode(err) != bothy.CodeMisdirected {
			t.Fatal(err)
		}
	}
	if again, _ := start("count", store.StartBounds{Sandboxes: new(most)}, bothy.StateResuming); len(again) != most {
		// Those that started already start once more, as when the answer to the first was lost.
		t.Errorf("with room for one more %d were made", len(again))
	}

	const minute = 5
	began := time.Now()
	made, refused = start("rate", store.StartBounds{PerMinute: minute}, bothy.StateRunning)
	meanwhile := int(time.Since(began).Minutes()*minute) + 1
	if len(made) < minute || len(made) > minute+meanwhile || len(made)+len(refused) != len(hosts)*each {
		t.Errorf("%d were made in a moment, %d refused, and %d may", len(made), len(refused), minute)
	}
	for _, r := range refused {
		if r.Live != 0 || r.Wait <= 0 || r.Wait > time.Minute/minute {
			t.Errorf("refused with %+v", *r)
		}
	}
	// A start that counts for nothing takes nothing from those that do.
	if made, _ := start("resumed", store.StartBounds{Sandboxes: new(1)}, bothy.StateRunning); len(made) != 1 {
		t.Errorf("%d were resumed", len(made))
	}
	if made, _ := start("resumed", store.StartBounds{PerMinute: minute}, bothy.StateRunning); len(made) < minute {
		t.Errorf("after the first start was a resume, %d were made in a moment, and %d may", len(made), minute)
	}
	// A bound that grows lets more through at its pace, and one that is gone all.
	if all, _ := start("free", store.StartBounds{}, bothy.StateRunning); len(all) != len(hosts)*each {
		t.Errorf("without a bound %d were made", len(all))
	}
}

// A pool's machines have no owner, paused sandboxes do not run, and other projects have bounds
// of their own.
func TestOnlySandboxesThatRunCount(t *testing.T) {
	url, ctx := database(t), t.Context()
	one, two := member(t, url, "one"), member(t, url, "two")
	defer one.Close()
	defer two.Close()
	for id, st := range map[string]bothy.State{"sbxp": bothy.StatePaused, "sbxs": bothy.StateStopped, "sbxf": bothy.StateFailed, "sbxw": bothy.StateRunning, "sbxo": bothy.StateRunning} {
		sb := sandbox(id, st)
		sb.Pooled = id == "sbxw"
		if id == "sbxo" {
			sb.ProjectID = "other"
		}
		must(t, one.PutSandbox(ctx, sb))
	}
	bounds := store.StartBounds{Sandboxes: new(1)}
	must(t, one.StartSandbox(ctx, current(t, one, sandbox("sbxp", bothy.StateResuming)), bounds))
	for _, st := range []bothy.State{bothy.StateRunning, bothy.StatePausing, bothy.StateStopping} {
		must(t, one.PutSandbox(ctx, current(t, one, sandbox("sbxp", st))))
		var beyond *store.PlanExceeded
		if err := two.StartSandbox(ctx, sandbox("sbx2", bothy.StateStarting), bounds); !errors.As(err, &beyond) || beyond.Live != 1 {
			t.Errorf("while the other is %s: %v", st, err)
		}
	}
	must(t, one.PutSandbox(ctx, current(t, one, sandbox("sbxp", bothy.StatePaused))))
	must(t, two.StartSandbox(ctx, sandbox("sbx2", bothy.StateStarting), bounds))
	if err := two.StartSandbox(ctx, sandbox("sbxp", bothy.StateResuming), bounds); bothy.ErrorCode(err) != bothy.CodeMisdirected {
		t.Errorf("another host's sandbox: %v", err)
	}
}

// Who follows the events of a project misses none, whichever hosts write them and whichever is
// asked: an id is never seen before a smaller one.
func TestAFollowerMissesNoEventOfAnyHost(t *testing.T) {
	url, ctx := database(t), t.Context()
	var hosts []*postgres.Store
	for _, name := range []string{"one", "two", "three"} {
		hosts = append(hosts, member(t, url, name))
		defer hosts[len(hosts)-1].Close()
	}
	const writers, each = 3, 60
	var wg sync.WaitGroup
	var written sync.Map
	for h, host := range hosts {
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					e := &bothy.Event{ProjectID: "p", Time: time.Now().UTC(), Type: fmt.Sprint(h, "-", w, "-", i)}
					if err := host.AddEvent(ctx, e); err != nil {
						t.Error(err)
					}
					written.Store(e.ID, e.Type)
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for _, host := range hosts {
		var since int64
		var seen int
		for ended := false; ; {
			list, err := host.Events(ctx, "p", since, 50)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				if e.ID != since+1 {
					t.Fatalf("after event %d comes %d", since, e.ID)
				}
				since = e.ID
				seen++
			}
			if ended && len(list) == 0 {
				break
			}
			select {
			case <-done:
				ended = true
			default:
			}
		}
		if seen != len(hosts)*writers*each {
			t.Errorf("a follower saw %d events", seen)
		}
	}
	if typ, ok := written.Load(int64(1)); !ok || typ == "" {
		t.Error("the first event has no writer")
	}
}

func TestHostsRaceForAQuota(t *testing.T) {
	url := database(t)
	one, two := member(t, url, "one"), member(t, url, "two")
	defer one.Close()
	defer two.Close()
	storetest.RaceForQuota(t, one, two)
}

// A sandbox that lost its host is due when the host that gave the other up says so, whatever the
// clocks of those that look are.
func TestSandboxesAreDueByTheClockOfTheDatabase(t *testing.T) {
	url, ctx := database(t), t.Context()
	now := map[string]func() time.Time{
		"ahead":  func() time.Time { return time.Now().Add(3 * time.Hour) },
		"behind": func() time.Time { return time.Now().Add(-3 * time.Hour) },
	}
	hosts := map[string]*postgres.Store{}
	for name, clock := range now {
		hosts[name] = member(t, url, name, postgres.WithNow(clock))
		defer hosts[name].Close()
	}
	for by, giver := range hosts {
		lost := crashed(t, url, "lost")
		id := "sbx" + by
		must(t, lost.PutSandbox(ctx, sandbox(id, bothy.StateRunning)))
		must(t, lost.PutSandbox(ctx, sandbox(id+"later", bothy.StateRunning)))
		done, err := giver.GiveUpHosts(ctx, 0, func(sb *store.Sandbox, _ string, _ func(string) *bothy.Snapshot) (bool, bothy.Event) {
			at := now[by]()
			if sb.ID != id {
				at = at.Add(time.Hour)
			}
			sb.State, sb.HostLoss = bothy.StatePaused, &bothy.HostLoss{At: at, NextResumeAt: &at}
			return true, bothy.Event{}
		})
		if err != nil || len(done) != 1 {
			t.Fatal(done, err)
		}
		for name, s := range hosts {
			due, err := s.SandboxesToResume(ctx, now[name](), 10)
			if err != nil || len(due) != 1 || due[0].ID != id {
				t.Errorf("of those that %s gave up, due to %s are %d; %v", by, name, len(due), err)
			}
		}
		if ok, err := hosts["behind"].ClaimSandbox(ctx, id); err != nil || !ok {
			t.Fatal(ok, err)
		}
		must(t, hosts["behind"].PutSandbox(ctx, current(t, hosts["behind"], sandbox(id, bothy.StateStopped))))
		if ok, err := hosts["behind"].ClaimSandbox(ctx, id+"later"); err != nil || !ok {
			t.Fatal(ok, err)
		}
		must(t, hosts["behind"].PutSandbox(ctx, current(t, hosts["behind"], sandbox(id+"later", bothy.StateStopped))))
		lost.Close()
	}
}

// How old snapshots are, and which of them is the newest, does not depend on the clocks of the hosts that
// took them, nor on that of the host that asks.
func TestSnapshotsAgeByTheClockOfTheDatabase(t *testing.T) {
	url, ctx := database(t), t.Context()
	now := map[string]func() time.Time{
		"ahead":  func() time.Time { return time.Now().Add(3 * time.Hour) },
		"behind": func() time.Time { return time.Now().Add(-3 * time.Hour) },
	}
	hosts := map[string]*postgres.Store{}
	for name, clock := range now {
		hosts[name] = member(t, url, name, postgres.WithNow(clock))
		defer hosts[name].Close()
	}
	for by, giver := range hosts {
		lost := crashed(t, url, "lost")
		id := "sbx" + by
		take := func(on, name string, age time.Duration, add func(context.Context, *bothy.Snapshot) error) string {
			t.Helper()
			n := &bothy.Snapshot{ID: "snp" + by + name, SandboxID: id, ProjectID: "p", CreatedAt: now[on]().Add(-age).UTC()}
			must(t, add(ctx, n))
			// Who stores it again, such as a host that renames it, does not make it younger.
			n.Name = name
			must(t, hosts["ahead"].PutSnapshot(ctx, n))
			return n.ID
		}
		sb := sandbox(id, bothy.StateRunning)
		sb.HeadSnapshotID = take("ahead", "old", time.Hour, hosts["ahead"].PutSnapshot)
		sb.Checkpoints = []string{take("behind", "new", time.Minute, func(ctx context.Context, n *bothy.Snapshot) error {
			return hosts["behind"].AddSnapshot(ctx, n, store.SnapshotQuota{Bytes: 1 << 40})
		})}
		must(t, lost.PutSandbox(ctx, sb))
		about := func(when string, n *bothy.Snapshot, at time.Time) {
			t.Helper()
			if n == nil || n.Name != "new" {
				t.Fatalf("%s the last snapshot is %+v", when, n)
			}
			if age := at.Sub(n.CreatedAt); age < time.Minute || age > 2*time.Minute {
				t.Errorf("%s it is %s old", when, age)
			}
		}
		done, err := giver.GiveUpHosts(ctx, 0, func(sb *store.Sandbox, _ string, snapshot func(string) *bothy.Snapshot) (bool, bothy.Event) {
			about("to "+by, sb.LastSnapshot(snapshot, snapshot), now[by]())
			sb.State = bothy.StatePaused
			return false, bothy.Event{}
		})
		if err != nil || len(done) != 1 {
			t.Fatal(done, err)
		}
		n, err := giver.TimedSnapshot(ctx, sb.Checkpoints[0])
		must(t, err)
		about("asked by "+by, n, now[by]())
		lost.Close()
	}
	if _, err := hosts["ahead"].TimedSnapshot(ctx, "snpnone"); bothy.ErrorCode(err) != bothy.CodeSnapshotNotFound {
		t.Errorf("one that does not exist: %v", err)
	}
	// What an earlier server recorded has only its own time.
	at := now["behind"]().UTC().Truncate(time.Second)
	must(t, hosts["behind"].PutSnapshot(ctx, &bothy.Snapshot{ID: "snpearlier", SandboxID: "sbx", ProjectID: "p", CreatedAt: at}))
	var changed int
	must(t, hosts["behind"].Sees(ctx, `WITH changed AS (UPDATE snapshots SET taken_at = NULL WHERE id = 'snpearlier' RETURNING 1) SELECT count(*) FROM changed`, &changed))
	if n, err := hosts["ahead"].TimedSnapshot(ctx, "snpearlier"); err != nil || changed != 1 || !n.CreatedAt.Equal(at) {
		t.Errorf("%+v %v", n, err)
	}
}

// A host whose server does not start is forgotten if it never ran and has nothing. Of another, the reason is
// kept until it runs.
func TestAHostIsNotStarted(t *testing.T) {
	url, ctx := database(t), t.Context()
	one := member(t, url, "one")
	defer one.Close()
	problem := func(name string) string {
		t.Helper()
		all, err := one.Hosts(ctx)
		must(t, err)
		for _, h := range all {
			if h.Name == name {
				return "listed: " + h.StartProblem
			}
		}
		return "none"
	}
	for what, c := range map[string]struct {
		before func(s *postgres.Store)
		want   string
	}{
		"new":            {func(*postgres.Store) {}, "none"},
		"with a sandbox": {func(s *postgres.Store) { must(t, s.PutSandbox(ctx, sandbox("sbx1", bothy.StateFailed))) }, "listed: no key"},
		"with what it has": {func(s *postgres.Store) {
			s.SetFigures(func() bothy.HostFigures { return bothy.HostFigures{CPUs: 2} })
			must(t, s.Renew(ctx))
		}, "listed: no key"},
	} {
		name := strings.ReplaceAll(what, " ", "-")
		two := member(t, url, name)
		c.before(two)
		must(t, two.NotStarted(ctx, "no key"))
		two.Close()
		if got := problem(name); got != c.want {
			t.Errorf("%s: %s", what, got)
		}
		two = member(t, url, name)
		two.SetFigures(func() bothy.HostFigures { return bothy.HostFigures{CPUs: 2} })
		must(t, two.Renew(ctx))
		if got := problem(name); got != "listed: " {
			t.Errorf("%s, once it runs: %s", what, got)
		}
		two.Close()
	}
}

// A host whose database cannot be reached freezes its sandboxes, which one server does not.
func TestOnlyOneServersSandboxesRunWithoutTheDatabase(t *testing.T) {
	for want, s := range map[string]*postgres.Store{"keep running": open(t, database(t)), "may be frozen": member(t, database(t), "one")} {
		defer s.Close()
		if e := bothy.AsError(s.Fault(io.EOF)); e.Code != bothy.CodeStore || !strings.Contains(e.Hint, want) {
			t.Errorf("%v: %q, want %q", e, e.Hint, want)
		}
	}
}
