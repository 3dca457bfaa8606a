package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

func testSnapshots(t *testing.T, f *fixture) {
	want := full[bothy.Snapshot](t)
	want.ID, want.ProjectID, want.SandboxID, want.Name, want.CreatedAt = "whole", "p", "a", "n", epoch
	other := &bothy.Snapshot{ID: "other", ProjectID: "p", SandboxID: "b", CreatedAt: epoch.Add(1)}
	theirs := &bothy.Snapshot{ID: "theirs", ProjectID: "q", SandboxID: "a", CreatedAt: epoch.Add(2)}
	for _, s := range []*bothy.Snapshot{want, other, theirs} {
		f.must(f.PutSnapshot(f.ctx, s))
	}
	got, err := f.Snapshot(f.ctx, "whole")
	f.must(err)
	equal(t, got, want)

	for _, c := range []struct {
		filter bothy.SnapshotFilter
		want   []string
	}{
		{bothy.SnapshotFilter{}, []string{"other", "whole"}},
		{bothy.SnapshotFilter{SandboxID: "a"}, []string{"whole"}},
		{bothy.SnapshotFilter{Name: "n"}, []string{"whole"}},
		{bothy.SnapshotFilter{SandboxID: "b", Name: "n"}, nil},
	} {
		p, err := f.Snapshots(f.ctx, "p", c.filter)
		f.must(err)
		equal(t, snapshotIDs(p.Items), c.want)
	}
	all, err := f.AllSnapshots(f.ctx)
	f.must(err)
	equal(t, snapshotIDs(all), []string{"theirs", "other", "whole"})

	testSnapshotSums(f, map[string]int64{"p": want.SizeBytes, "q": 0, "r": 0, "": want.SizeBytes})
	other.SizeBytes, theirs.SizeBytes = 7, 1<<40
	f.must(f.PutSnapshot(f.ctx, other))
	f.must(f.PutSnapshot(f.ctx, theirs))
	testSnapshotSums(f, map[string]int64{"p": want.SizeBytes + 7, "q": 1 << 40, "": want.SizeBytes + 7 + 1<<40})

	updated := *other
	updated.Durable, updated.Name = bothy.DurableStore, "a\x00\xff\u2028\"name"
	got, changed, err := f.SetSnapshotDurable(f.ctx, other.ID, bothy.DurableStore)
	f.must(err)
	if got.Durable != bothy.DurableStore || !changed {
		t.Errorf("the snapshot is kept as %q, and that changed: %v", got.Durable, changed)
	}
	if _, changed, err = f.SetSnapshotDurable(f.ctx, other.ID, bothy.DurableStore); err != nil || changed {
		t.Errorf("the same again: %v %v", changed, err)
	}
	testDurableRace(f, &updated)

	f.must(f.DeleteSnapshot(f.ctx, "whole"))
	_, _, err = f.SetSnapshotDurable(f.ctx, "whole", bothy.DurableHost)
	f.wantCode(err, bothy.CodeSnapshotNotFound)
	testSnapshotSums(f, map[string]int64{"p": 7})
	_, err = f.Snapshot(f.ctx, "whole")
	f.wantCode(err, bothy.CodeSnapshotNotFound)
	f.wantCode(f.DeleteSnapshot(f.ctx, "whole"), bothy.CodeSnapshotNotFound)
}

// testDurableRace changes where a snapshot is kept while others change that, too, and the rest
// of it: each change is reported once, and nothing is overwritten.
func testDurableRace(f *fixture, n *bothy.Snapshot) {
	f.Helper()
	n.Durable = bothy.DurableHost
	f.must(f.PutSnapshot(f.ctx, n))
	var changes atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, changed, err := f.SetSnapshotDurable(f.ctx, n.ID, bothy.DurableStore)
			if err != nil {
				f.Error(err)
			}
			if changed {
				changes.Add(1)
			}
		})
	}
	all.Wait()
	if changes.Load() != 1 {
		f.Errorf("%d of them changed it", changes.Load())
	}
	n.Durable = bothy.DurableStore
	got, err := f.Snapshot(f.ctx, n.ID)
	f.must(err)
	if got.Durable != n.Durable || got.SizeBytes != n.SizeBytes || got.SandboxID != n.SandboxID || !got.CreatedAt.Equal(n.CreatedAt) {
		f.Errorf("it is %+v", got)
	}
}

// testSnapshotSums compares the sums of projects, and counts with the lists.
func testSnapshotSums(f *fixture, want map[string]int64) {
	f.Helper()
	all, err := f.AllSnapshots(f.ctx)
	f.must(err)
	for project, bytes := range want {
		n := 0
		for _, s := range all {
			if project == "" || s.ProjectID == project {
				n++
			}
		}
		count, sum, err := f.SnapshotSum(f.ctx, project)
		f.must(err)
		equal(f.T, []int64{int64(count), sum}, []int64{int64(n), bytes})
	}
}

func snapshotIDs(items []*bothy.Snapshot) []string {
	var out []string
	for _, s := range items {
		out = append(out, s.ID)
	}
	return out
}

// testSnapshotQuota adds snapshots one after the other, and many at the same time.
func testSnapshotQuota(t *testing.T, f *fixture) {
	snap := func(id string, bytes int64) *bothy.Snapshot {
		return &bothy.Snapshot{ID: id, ProjectID: "p", SandboxID: "a", SizeBytes: bytes, CreatedAt: epoch}
	}
	refused := func(err error, used int64) {
		t.Helper()
		var over *store.OverQuota
		if !errors.As(err, &over) || over.Used != used {
			t.Fatalf("beyond the quota: %v, want one that says %d", err, used)
		}
	}
	theirs := snap("theirs", 1<<40)
	theirs.ProjectID = "q"
	f.must(f.AddSnapshot(f.ctx, theirs, store.SnapshotQuota{}))
	f.must(f.AddSnapshot(f.ctx, snap("a", 60), store.SnapshotQuota{Bytes: 100}))
	refused(f.AddSnapshot(f.ctx, snap("b", 41), store.SnapshotQuota{Bytes: 100}), 60)
	f.must(f.AddSnapshot(f.ctx, snap("b", 100), store.SnapshotQuota{Bytes: 100, Replaced: 70})) // no less than all goes
	f.must(f.DeleteSnapshot(f.ctx, "b"))
	f.must(f.AddSnapshot(f.ctx, snap("a", 100), store.SnapshotQuota{Bytes: 100})) // is not counted twice
	refused(f.AddSnapshot(f.ctx, snap("b", 1), store.SnapshotQuota{Bytes: 100}), 100)
	f.must(f.AddSnapshot(f.ctx, snap("b", 1), store.SnapshotQuota{}))
	f.must(f.DeleteSnapshot(f.ctx, "a"))
	f.must(f.DeleteSnapshot(f.ctx, "b"))
	RaceForQuota(t, f.Store, f.Store)
}

// RaceForQuota has servers that share a store add snapshots at the same time, of which a
// quota has room for three.
func RaceForQuota(t *testing.T, servers ...store.Store) {
	t.Helper()
	for round := range 20 {
		project := fmt.Sprint("race", round)
		var all sync.WaitGroup
		var added, refused atomic.Int64
		begin := make(chan struct{})
		for i := range 8 {
			at := servers[i%len(servers)]
			all.Go(func() {
				<-begin
				n := &bothy.Snapshot{ID: fmt.Sprint(project, i), ProjectID: project, SandboxID: "a", SizeBytes: 10, CreatedAt: epoch}
				var over *store.OverQuota
				switch err := at.AddSnapshot(context.Background(), n, store.SnapshotQuota{Bytes: 39}); {
				case err == nil:
					added.Add(1)
				case errors.As(err, &over):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		close(begin)
		all.Wait()
		if _, bytes, err := servers[0].SnapshotSum(context.Background(), project); err != nil || bytes != 30 || added.Load() != 3 || refused.Load() != 5 {
			t.Fatalf("%d were added, of %d bytes, and %d refused, %v; want 3, 30 and 5", added.Load(), bytes, refused.Load(), err)
		}
	}
}

func testSnapshotPages(t *testing.T, f *fixture) {
	var want []string
	for i := range 10 {
		s := &bothy.Snapshot{ID: fmt.Sprint("n", i), ProjectID: "p", CreatedAt: epoch.Add(time.Duration(i/3) * time.Second)}
		f.must(f.PutSnapshot(f.ctx, s))
		want = append([]string{s.ID}, want...)
	}
	var got []string
	for cursor := ""; ; {
		p, err := f.Snapshots(f.ctx, "p", bothy.SnapshotFilter{Limit: 3, Cursor: cursor})
		f.must(err)
		got = append(got, snapshotIDs(p.Items)...)
		if cursor = p.NextCursor; cursor == "" {
			break
		}
	}
	equal(t, got, want)
}

func testTokens(t *testing.T, f *fixture) {
	want := full[store.Token](t)
	want.ID, want.ProjectID, want.Hash, want.CreatedAt = "t1", "p", "hash1", epoch
	f.must(f.PutToken(f.ctx, want))
	f.must(f.PutToken(f.ctx, &store.Token{Token: bothy.Token{ID: "t2", ProjectID: "p", CreatedAt: epoch.Add(1)}, Hash: "hash2"}))
	f.must(f.PutToken(f.ctx, &store.Token{Token: bothy.Token{ID: "t3", ProjectID: "q", CreatedAt: epoch}, Hash: "hash3"}))

	got, err := f.TokenByHash(f.ctx, "hash1")
	f.must(err)
	want.Key = "" // the one thing that a store must not keep
	equal(t, got, want)
	_, err = f.TokenByHash(f.ctx, "hash")
	f.wantCode(err, bothy.CodeNotFound)

	f.wantCode(f.DeleteToken(f.ctx, "q", "t1"), bothy.CodeNotFound)
	f.must(f.DeleteToken(f.ctx, "p", "t1"))
	_, err = f.TokenByHash(f.ctx, "hash1")
	f.wantCode(err, bothy.CodeNotFound)
	f.wantCode(f.DeleteToken(f.ctx, "p", "t1"), bothy.CodeNotFound)

	hashes, err := f.TokenHashes(f.ctx)
	f.must(err)
	slices.Sort(hashes)
	equal(t, hashes, []string{"hash2", "hash3"})

	list, err := f.Tokens(f.ctx, "p")
	f.must(err)
	if len(list) != 1 || list[0].ID != "t2" {
		t.Fatalf("the project has the tokens %v, want t2", list)
	}
	if f.PutToken(f.ctx, &store.Token{Token: bothy.Token{ID: "t4", ProjectID: "p"}, Hash: "hash2"}) == nil {
		t.Fatal("two tokens may have one key")
	}
}

func testTouchToken(t *testing.T, f *fixture) {
	f.must(f.PutToken(f.ctx, &store.Token{Token: bothy.Token{ID: "t", ProjectID: "p", CreatedAt: epoch}, Hash: "h"}))
	for _, at := range []time.Time{epoch.Add(time.Hour), epoch} {
		f.must(f.TouchToken(f.ctx, "t", at))
		got, err := f.TokenByHash(f.ctx, "h")
		f.must(err)
		if got.LastUsedAt == nil || !got.LastUsedAt.Equal(epoch.Add(time.Hour)) {
			t.Fatalf("last used at %v, want the later time", got.LastUsedAt)
		}
	}
}

func testProjects(t *testing.T, f *fixture) {
	want := []*bothy.Project{{ID: "a", Plan: "pro", CreatedAt: epoch.Add(time.Hour)}, {ID: "b", Plan: "starter", CreatedAt: epoch}}
	f.must(f.AddProject(f.ctx, want[1]))
	f.must(f.AddProject(f.ctx, want[0]))
	f.wantCode(f.AddProject(f.ctx, &bothy.Project{ID: "a", Plan: "team", CreatedAt: epoch}), bothy.CodeConflict)
	all, err := f.Projects(f.ctx)
	f.must(err)
	equal(t, all, want)

	f.must(f.SetPlan(f.ctx, "b", "team"))
	f.wantCode(f.SetPlan(f.ctx, "c", "team"), bothy.CodeProjectNotFound)
	got, err := f.Project(f.ctx, "b")
	f.must(err)
	equal(t, got, &bothy.Project{ID: "b", Plan: "team", CreatedAt: epoch})
	_, err = f.Project(f.ctx, "c")
	f.wantCode(err, bothy.CodeProjectNotFound)
}

func testEvents(t *testing.T, f *fixture) {
	want := full[bothy.Event](t)
	want.ID, want.ProjectID = 0, "p"
	f.must(f.AddEvent(f.ctx, want))
	first := want.ID
	for _, project := range []string{"q", "p", "p"} {
		e := &bothy.Event{Time: epoch, Type: bothy.EventSandboxCreated, ProjectID: project}
		f.must(f.AddEvent(f.ctx, e))
		if e.ID <= want.ID {
			t.Fatalf("event id %d after %d", e.ID, want.ID)
		}
		if project == "p" && want.ID == first {
			first = want.ID
		}
	}
	all, err := f.Events(f.ctx, "p", 0, 10)
	f.must(err)
	if len(all) != 3 {
		t.Fatalf("got %d events, want 3", len(all))
	}
	equal(t, all[0], *want)
	rest, err := f.Events(f.ctx, "p", all[0].ID, 1)
	f.must(err)
	equal(t, rest, all[1:2])
	none, err := f.Events(f.ctx, "p", all[2].ID, 10)
	f.must(err)
	equal(t, none, []bothy.Event{})
	latest, err := f.EventsBefore(f.ctx, "p", math.MaxInt64, 2)
	f.must(err)
	equal(t, latest, []bothy.Event{all[2], all[1]})
	earlier, err := f.EventsBefore(f.ctx, "p", all[1].ID, 10)
	f.must(err)
	equal(t, earlier, all[:1])
	none, err = f.EventsBefore(f.ctx, "p", all[0].ID, 10)
	f.must(err)
	equal(t, none, []bothy.Event{})
}

func testForgetEvents(t *testing.T, f *fixture) {
	var last bothy.Event
	for i := range 3 {
		last = bothy.Event{Time: epoch.Add(time.Duration(i) * time.Hour), ProjectID: "p"}
		f.must(f.AddEvent(f.ctx, &last))
	}
	n, err := f.DeleteEventsBefore(f.ctx, epoch.Add(2*time.Hour))
	f.must(err)
	if n != 2 {
		t.Fatalf("forgot %d events, want 2", n)
	}
	n, err = f.DeleteEventsBefore(f.ctx, epoch.Add(3*time.Hour))
	f.must(err)
	if n != 1 {
		t.Fatalf("forgot %d events, want 1", n)
	}
	next := &bothy.Event{Time: epoch, ProjectID: "p"}
	f.must(f.AddEvent(f.ctx, next))
	if next.ID <= last.ID {
		t.Fatalf("id %d is used again after %d was forgotten", next.ID, last.ID)
	}
}

// fewer is a context that ends after it was checked n times.
type fewer struct {
	context.Context
	left *atomic.Int64
}

func (c fewer) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// Those who write must not wait for the deletion of everything: it is made in parts,
// between which it may also be given up.
func testForgetInParts(t *testing.T, f *fixture) {
	const n = 1200
	for i := range n {
		f.must(f.AddEvent(f.ctx, &bothy.Event{Time: epoch, ProjectID: "p"}))
		b := sandbox(fmt.Sprint("s", i), epoch)
		b.State = bothy.StateStopped
		f.must(f.PutSandbox(f.ctx, b))
	}
	f.must(f.PutSandbox(f.ctx, sandbox("young", epoch.Add(time.Hour))))
	for what, forget := range map[string]func(context.Context, time.Time) (int, error){
		"events": f.DeleteEventsBefore, "sandboxes": f.DeleteSandboxesEndedBefore,
	} {
		left := &atomic.Int64{}
		left.Store(1)
		first, err := forget(fewer{f.ctx, left}, epoch.Add(time.Minute))
		if !errors.Is(err, context.Canceled) || first == 0 || first == n {
			t.Errorf("%s: given up after a part, %d of %d were forgotten: %v", what, first, n, err)
		}
		rest, err := forget(f.ctx, epoch.Add(time.Minute))
		f.must(err)
		if first+rest != n {
			t.Errorf("%s: forgot %d and %d, want %d in all", what, first, rest, n)
		}
	}
	_, err := f.Sandbox(f.ctx, "young")
	f.must(err)
}

func testAnswerDropped(t *testing.T, f *fixture) {
	a, err := f.ReserveAnswer(f.ctx, "p", "key", "print")
	f.must(err)
	if a != nil {
		t.Fatalf("a new key has the answer %+v", a)
	}
	f.must(f.StoreAnswer(f.ctx, "p", "key", store.Answer{Status: 200, Dropped: true}))
	f.reopen()
	got, err := f.ReserveAnswer(f.ctx, "p", "key", "print")
	f.must(err)
	equal(t, got, &store.Answer{Status: 200, Dropped: true, Fingerprint: "print", CreatedAt: epoch, Header: map[string]string{}})
}

func testAnswerKept(t *testing.T, f *fixture) {
	a, err := f.ReserveAnswer(f.ctx, "p", "key", "print")
	f.must(err)
	if a != nil {
		t.Fatalf("a new key has the answer %+v", a)
	}
	want := store.Answer{Status: 201, Header: map[string]string{"Location": "/x"}, Body: []byte("\x00\xffbody")}
	f.must(f.StoreAnswer(f.ctx, "p", "key", want))
	got, err := f.ReserveAnswer(f.ctx, "p", "key", "another print")
	f.must(err)
	want.Fingerprint, want.CreatedAt = "print", epoch
	equal(t, got, &want)

	a, err = f.ReserveAnswer(f.ctx, "q", "key", "print")
	f.must(err)
	if a != nil {
		t.Fatal("one project sees another's answers")
	}
	const nearly = 24*time.Hour - 20*time.Second
	f.clock.forward(nearly)
	if a, err = f.ReserveAnswer(f.ctx, "p", "key", "print"); err != nil || a == nil {
		t.Fatalf("after %v: %v, %v", nearly, a, err)
	}
	f.clock.forward(21 * time.Second)
	if a, err = f.ReserveAnswer(f.ctx, "p", "key", "print"); err != nil || a != nil {
		t.Fatalf("after a day: %v, %v", a, err)
	}
	f.must(f.StoreAnswer(f.ctx, "p", "key", want))
	f.clock.forward(25 * time.Hour)
	if a, err = f.ReserveAnswer(f.ctx, "p", "key", "print"); err != nil || a != nil {
		t.Fatalf("after another: %v, %v", a, err)
	}
}

func testAnswerReservedOnce(t *testing.T, f *fixture) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 20 {
		wg.Go(func() {
			a, err := f.ReserveAnswer(f.ctx, "p", "key", "print")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if a == nil {
				won++
			} else if a.Status != 0 || a.Fingerprint != "print" {
				t.Errorf("a loser sees %+v", a)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Fatalf("%d requests own the key, want 1", won)
	}
}

func testAnswerForgotten(t *testing.T, f *fixture) {
	reserve := func(want bool) {
		t.Helper()
		a, err := f.ReserveAnswer(f.ctx, "p", "key", "print")
		f.must(err)
		if (a == nil) != want {
			t.Fatalf("reserved: %v, want %v", a == nil, want)
		}
	}
	reserve(true)
	f.must(f.ForgetAnswer(f.ctx, "p", "key"))
	reserve(true)
	reserve(false)
	f.reopen()
	reserve(true) // its server is gone
	f.must(f.StoreAnswer(f.ctx, "p", "key", store.Answer{Status: 200}))
	f.reopen()
	reserve(false)
	f.must(f.ForgetAnswer(f.ctx, "p", "key"))
	f.must(f.ForgetAnswer(f.ctx, "p", "key"))
	if f.StoreAnswer(f.ctx, "p", "key", store.Answer{Status: 200}) == nil {
		t.Fatal("an answer was stored under a key that was not reserved")
	}
}

// A reservation of ReserveOnce is not free again when its server is gone: what it was for may have
// been done.
func testReserveOnce(t *testing.T, f *fixture) {
	f.must(second(f.ReserveOnce(f.ctx, "p", "done", "print")))
	f.must(f.StoreAnswer(f.ctx, "p", "done", store.Answer{Status: 200, Body: []byte("body")}))
	f.must(second(f.ReserveOnce(f.ctx, "p", "failed", "print")))
	f.must(f.ForgetAnswer(f.ctx, "p", "failed"))
	f.must(second(f.ReserveAnswer(f.ctx, "p", "other", "print")))
	reserve := func(when string, want *store.Answer) {
		t.Helper()
		for name, reserve := range map[string]func(context.Context, string, string, string) (*store.Answer, error){"once": f.ReserveOnce, "": f.ReserveAnswer} {
			a, err := reserve(f.ctx, "p", "key", "print")
			if err != nil || (a == nil) != (want == nil) || a != nil && (a.Status != 0 || a.Fingerprint != "print" || a.Unknown != want.Unknown) {
				t.Fatalf("%s it was reserved %s: %+v %v", when, name, a, err)
			}
			if want == nil {
				f.must(f.ForgetAnswer(f.ctx, "p", "key"))
			}
		}
	}
	reserve("at first", nil)
	f.must(second(f.ReserveOnce(f.ctx, "p", "key", "print")))
	reserve("while it is worked on", &store.Answer{})
	for range 2 {
		f.reopen()
		reserve("when its server is gone", &store.Answer{Unknown: true})
	}
	if a, err := f.ReserveOnce(f.ctx, "p", "done", "print"); err != nil || a == nil || string(a.Body) != "body" || a.Unknown || a.Dropped {
		t.Errorf("what was answered: %+v %v", a, err)
	}
	for _, key := range []string{"failed", "other"} {
		if a, err := f.ReserveOnce(f.ctx, "p", key, "print"); err != nil || a != nil {
			t.Errorf("%s: %+v %v", key, a, err)
		}
	}
	f.clock.forward(25 * time.Hour)
	reserve("after a day", nil)
}

// second is the error of a reservation, and one if the key was not free.
func second(a *store.Answer, err error) error {
	if err == nil && a != nil {
		err = fmt.Errorf("the key has the answer %+v", a)
	}
	return err
}

func testReopen(t *testing.T, f *fixture) {
	b := sandbox("a", epoch)
	f.must(f.PutSandbox(f.ctx, b))
	n := &bothy.Snapshot{ID: "n", ProjectID: "p", CreatedAt: epoch, Durable: bothy.DurableHost}
	f.must(f.PutSnapshot(f.ctx, n))
	k := &store.Token{Token: bothy.Token{ID: "t", ProjectID: "p", CreatedAt: epoch}, Hash: "h"}
	f.must(f.PutToken(f.ctx, k))
	e := &bothy.Event{Time: epoch, Type: "x", ProjectID: "p"}
	f.must(f.AddEvent(f.ctx, e))
	f.reopen()

	gotB, err := f.Sandbox(f.ctx, "a")
	f.must(err)
	equal(t, gotB, b)
	gotN, err := f.Snapshot(f.ctx, "n")
	f.must(err)
	equal(t, gotN, n)
	gotK, err := f.TokenByHash(f.ctx, "h")
	f.must(err)
	equal(t, gotK, k)
	gotE, err := f.Events(f.ctx, "p", 0, 10)
	f.must(err)
	equal(t, gotE, []bothy.Event{*e})
}

func testConcurrent(t *testing.T, f *fixture) {
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 20 {
				s := sandbox(fmt.Sprintf("s%d-%d", w, i), epoch.Add(time.Duration(i)))
				if i%5 == 0 {
					s.State = bothy.StatePaused
				}
				if err := f.PutSandbox(f.ctx, s); err != nil {
					t.Error(err)
				}
				if got, err := f.Sandbox(f.ctx, s.ID); err != nil || got.State != s.State {
					t.Errorf("a writer does not see what it wrote: %v, %v", got, err)
				}
				if err := f.AddEvent(f.ctx, &bothy.Event{Time: epoch, ProjectID: "p"}); err != nil {
					t.Error(err)
				}
				if _, err := f.Sandboxes(f.ctx, "p", bothy.SandboxFilter{Limit: 5}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	p, err := f.Sandboxes(f.ctx, "p", bothy.SandboxFilter{Limit: 1000})
	f.must(err)
	if len(p.Items) != 160 {
		t.Fatalf("%d sandboxes, want 160", len(p.Items))
	}
}
