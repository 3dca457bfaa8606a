package sqlite_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy/store"
)

// TestDamagedPack damages what questions are answered from, part by part: the
// answer is then computed from the records, and the pack is made again.
func TestDamagedPack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.db")
	s := open(t, path)
	defer s.Close()
	first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Unix() / 3600
	var b store.UsageBatch
	b.ID = "1"
	for hour := range int64(40 * 24) {
		b.Rows = append(b.Rows, store.UsageRow{
			UsageKey: store.UsageKey{Project: "p", Template: "t", Sandbox: "s", Labels: `{"team":"red"}`}, Hour: first + hour, Counts: store.Counts{1, hour},
		})
	}
	if err := s.WriteUsage(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	packAll := func() {
		for more := true; more; {
			var err error
			if more, err = s.PackUsage(t.Context(), first+1000); err != nil {
				t.Fatal(err)
			}
		}
	}
	packAll()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	q := store.UsageQuery{From: first + 5, To: first + 36*24 + 7, Sandbox: true, Labels: []string{"team"}}
	ask := func() store.Counts {
		t.Helper()
		got, err := s.QueryUsage(t.Context(), q)
		if err != nil || len(got) != 1 {
			t.Fatalf("got %+v, %v", got, err)
		}
		return got[0].Counts
	}
	want := ask()
	if n := q.To - q.From; want[0] != n || want[1] != (q.From-first+q.To-first-1)*n/2 {
		t.Fatalf("the answer is %v", want)
	}
	for _, damage := range []string{
		"UPDATE usage_packs SET data = zeroblob(length(data))", "UPDATE usage_packs SET data = x'00000000' WHERE part = 'counts'",
		"UPDATE usage_packs SET data = substr(data, 1, length(data) - 1) WHERE part = 'counts'",
		"UPDATE usage_packs SET data = x'' WHERE part = 'counts'",
	} {
		r, err := db.Exec(damage)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := r.RowsAffected(); n == 0 {
			t.Fatalf("%s does nothing", damage)
		}
		if got := ask(); got != want {
			t.Errorf("after %s the answer is %v, and was %v", damage, got, want)
		}
		packAll()
		var left int
		if err := db.QueryRow("SELECT count(*) FROM usage_unpacked").Scan(&left); err != nil || left != 0 {
			t.Errorf("%d packs are still to be made, %v", left, err)
		}
		if got := ask(); got != want {
			t.Errorf("made anew, the answer is %v, and was %v", got, want)
		}
	}
}

// TestPacksAnswerAsRecordsDo asks about a month with many sandboxes, whose packs
// have several chunks and a digest, before and after they are made.
func TestPacksAnswerAsRecordsDo(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "b.db"))
	defer s.Close()
	first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Unix() / 3600
	const sandboxes, hours = 2000, 35 * 24
	b := store.UsageBatch{ID: "1"}
	for i := range int64(2 * sandboxes) {
		labels := fmt.Sprintf(`{"env":"env-%d","task":"task-%d","team":"team-%d"}`, i%3, i%sandboxes, i%sandboxes/7%10)
		if i%5 == 0 {
			labels = ""
		}
		b.Rows = append(b.Rows, store.UsageRow{
			UsageKey: store.UsageKey{Project: fmt.Sprint("p", i%sandboxes%2), Template: fmt.Sprint("t", i%sandboxes%5), Sandbox: fmt.Sprint("sbx", i*7919%sandboxes), Labels: labels},
			Hour:     first + i%hours, Counts: store.Counts{1, i, 512 << 20, i * i, 0, 0, 1 << 62 / (i + 1)},
		})
	}
	if err := s.WriteUsage(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	var questions []store.UsageQuery
	for _, q := range []store.UsageQuery{
		{Sandbox: true}, {Labels: []string{"team"}}, {Labels: []string{"task"}}, {Labels: []string{"team", "env"}, Template: true}, {Labels: []string{"env", "task"}},
		{Sandbox: true, Template: true, Project: true}, {Day: true, Sandbox: true}, {Hour: true, Labels: []string{"team"}}, {Labels: []string{"none"}},
		{Day: true, In: store.UsageKey{Sandbox: "sbx77"}}, {Sandbox: true, Labels: []string{"team"}, In: store.UsageKey{Template: "t3"}},
	} {
		q.Limit = 1500
		q.From, q.To = first, first+hours
		questions = append(questions, q)
		q.From, q.To = first+7, first+33*24+9
		questions = append(questions, q)
	}
	ask := func(q store.UsageQuery) (all []store.UsageGroup) {
		for {
			page, err := s.QueryUsage(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if all = append(all, page...); len(page) < q.Limit {
				return all
			}
			q.After = &page[len(page)-1]
		}
	}
	var want [][]store.UsageGroup
	for _, q := range questions {
		want = append(want, ask(q))
	}
	for more := true; more; {
		var err error
		if more, err = s.PackUsage(t.Context(), first+33*24+5); err != nil {
			t.Fatal(err)
		}
	}
	for i, q := range questions {
		got := ask(q)
		if len(got) == 0 || !slices.EqualFunc(got, want[i], func(a, b store.UsageGroup) bool { return store.CompareUsage(a, b) == 0 && a.Counts == b.Counts }) {
			t.Errorf("%+v: %d groups from the packs are not the %d of the records", q, len(got), len(want[i]))
		}
	}
}

// TestNothingIsLostWhilePacksAreMade asks while records come, late ones too, and
// packs are made: an answer holds all that was written before it was asked for, and
// nothing that was not written when it came.
func TestNothingIsLostWhilePacksAreMade(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "b.db"))
	defer s.Close()
	first := time.Date(2026, 1, 30, 0, 0, 0, 0, time.UTC).Unix() / 3600
	const batches, hours = 150, 4 * 24 // over the end of a month
	var began, written atomic.Int64
	var all sync.WaitGroup
	defer all.Wait()
	done := make(chan struct{})
	all.Go(func() {
		defer close(done)
		r := rand.New(rand.NewPCG(3, 4))
		for n := range batches {
			b := store.UsageBatch{ID: fmt.Sprint(n)}
			for range 1 + r.IntN(5) {
				now := min(int64(n)+1, hours)
				b.Rows = append(b.Rows, store.UsageRow{
					UsageKey: store.UsageKey{Project: fmt.Sprint("p", r.IntN(2)), Sandbox: fmt.Sprint("s", r.IntN(9)), Labels: `{"team":"red"}`},
					Hour:     first + r.Int64N(now), Counts: store.Counts{1},
				})
			}
			began.Add(int64(len(b.Rows)))
			if err := s.WriteUsage(t.Context(), b); err != nil {
				t.Error(err)
			}
			written.Add(int64(len(b.Rows)))
		}
	})
	running := func() bool {
		select {
		case <-done:
			return false
		default:
			return true
		}
	}
	for i := range 2 {
		all.Go(func() {
			for n := int64(0); running(); n++ {
				if _, err := s.PackUsage(t.Context(), first+(n/7+int64(i))%hours); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	ask := func(q store.UsageQuery) (sum int64) {
		groups, err := s.QueryUsage(t.Context(), q)
		if err != nil {
			t.Error(err)
		}
		for _, g := range groups {
			sum += g.Counts[0]
		}
		return sum
	}
	for more := true; more; {
		more = running()
		for _, q := range []store.UsageQuery{{Sandbox: true}, {Labels: []string{"team"}}, {Day: true, Sandbox: true}, {Hour: true, Labels: []string{"team"}}} {
			q.From, q.To = first-30*24, first+60*24
			before := written.Load()
			got := ask(q)
			if after := began.Load(); got < before || got > after {
				t.Fatalf("%+v: the answer is %d; %d were written before it, and %d when it came", q, got, before, after)
			}
		}
	}
}
