package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy/store"
)

// usage is the store's usage interface.
func (f *fixture) usage() store.Usage {
	f.Helper()
	u, ok := f.Store.(store.Usage)
	if !ok {
		f.Fatal("the store keeps no usage")
	}
	return u
}

func testUsageBatches(t *testing.T, f *fixture) {
	key := store.UsageKey{Project: "p", Template: "t", Sandbox: "s", Labels: `{"team":"red"}`, Root: "r"}
	at := store.Moment{Wall: epoch, Boot: "b", Uptime: 7 * time.Second}
	mark := store.UsageMark{Sandbox: "s", Started: 5, Moment: at, CPU: 1, Egress: 2, Ingress: 3}
	batch := store.UsageBatch{
		ID: "1", Rows: []store.UsageRow{{UsageKey: key, Hour: 100, Counts: store.Counts{1, 2, 3, 4, 5, 6, 7}}},
		Marks: []store.UsageMark{mark}, Storage: &at,
	}
	f.must(f.usage().WriteUsage(f.ctx, batch))
	f.must(f.usage().WriteUsage(f.ctx, batch)) // again: it is not written twice
	f.reopen()
	f.must(f.usage().WriteUsage(f.ctx, batch)) // nor by another server
	batch.ID, batch.Marks, batch.Storage = "2", nil, nil
	f.must(f.usage().WriteUsage(f.ctx, batch))
	p, err := f.usage().UsageProgress(f.ctx)
	f.must(err)
	if len(p.Marks) != 1 || p.Marks[0] != mark || p.Storage == nil || !p.Storage.Wall.Equal(at.Wall) || p.Storage.Uptime != at.Uptime {
		t.Errorf("the progress is %+v", p)
	}
	groups, err := f.usage().QueryUsage(f.ctx, store.UsageQuery{From: 0, To: 1000})
	f.must(err)
	if len(groups) != 1 || groups[0].Counts != (store.Counts{2, 4, 6, 8, 10, 12, 14}) {
		t.Errorf("got %+v", groups)
	}
	if c, err := f.usage().TreeUsage(f.ctx, "r"); err != nil || c != groups[0].Counts {
		t.Errorf("the tree: %v, %v", c, err)
	}
	if c, err := f.usage().TreeUsage(f.ctx, "none"); err != nil || c != (store.Counts{}) {
		t.Errorf("no tree: %v, %v", c, err)
	}
	f.must(f.usage().WriteUsage(f.ctx, store.UsageBatch{ID: "3", Gone: []string{"s", "never"}}))
	if p, err = f.usage().UsageProgress(f.ctx); err != nil || len(p.Marks) != 0 || p.Storage == nil {
		t.Errorf("the progress is %+v, %v", p, err)
	}
}

// testUsageQueries compares results with sums over the rows.
func testUsageQueries(t *testing.T, f *fixture) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	first := time.Date(2025, 11, 20, 0, 0, 0, 0, time.UTC).Unix() / 3600
	const hours = 100 * 24 // over the ends of months and of a year
	var rows []store.UsageRow
	for range 1200 {
		row := store.UsageRow{Hour: first + r.Int64N(hours), UsageKey: store.UsageKey{
			Project: pick("p1", "p2", "p3"), Template: pick("", "t1", "t2"), Sandbox: pick("", "s1", "s2", "s3"),
			Labels: pick("", `{"team":"red"}`, `{"team":"blue","tier":"a\"b"}`, `{"tier":""}`),
		}}
		for i := range row.Counts {
			row.Counts[i] = r.Int64N(1000)
		}
		rows = append(rows, row)
	}
	n := 0
	for batch := range slices.Chunk(rows, 300) {
		n++
		f.must(f.usage().WriteUsage(f.ctx, store.UsageBatch{ID: fmt.Sprint(n), Rows: batch}))
	}
	for range 200 {
		q := store.UsageQuery{From: first + r.Int64N(hours) - 50}
		q.To = q.From + r.Int64N(hours)
		if r.IntN(2) == 0 { // whole days
			q.From, q.To = q.From/24*24, q.To/24*24
		}
		yes := func(of int) bool { return r.IntN(of) == 0 }
		q.Day, q.Project, q.Template, q.Sandbox = yes(3), yes(3), yes(3), yes(4)
		q.Hour = !q.Day && yes(5)
		if yes(2) {
			q.Labels = []string{pick("team", "tier", "none")}
			if yes(3) {
				q.Labels = append(q.Labels, "tier")
			}
		}
		if yes(2) {
			q.In.Project = pick("p1", "p2", "nobody")
		}
		if yes(4) {
			q.In.Template = "t1"
		}
		if yes(4) {
			q.In.Sandbox = "s2"
		}
		got, err := f.usage().QueryUsage(f.ctx, q)
		f.must(err)
		if want := sumUp(rows, q); describe(got) != describe(want) {
			t.Fatalf("%+v:\ngot  %s\nwant %s", q, describe(got), describe(want))
		}
		if !slices.IsSortedFunc(got, store.CompareUsage) {
			t.Fatalf("%+v: not in order: %s", q, describe(got))
		}
		q.Limit = 1 + r.IntN(len(got)+2)
		if paged := f.pages(q); !slices.EqualFunc(paged, got, sameGroup) {
			t.Fatalf("%+v: the pages are\n%s\nand all is\n%s", q, describe(paged), describe(got))
		}
	}
}

// pages queries page by page.
func (f *fixture) pages(q store.UsageQuery) (all []store.UsageGroup) {
	f.Helper()
	for {
		page, err := f.usage().QueryUsage(f.ctx, q)
		f.must(err)
		if len(page) > q.Limit {
			f.Fatalf("a page of %d has %d groups", q.Limit, len(page))
		}
		if all = append(all, page...); len(page) < q.Limit {
			return all
		}
		q.After = &page[len(page)-1]
	}
}

func sameGroup(a, b store.UsageGroup) bool {
	return store.CompareUsage(a, b) == 0 && a.Counts == b.Counts
}

// sumUp is the expected result of a query.
func sumUp(rows []store.UsageRow, q store.UsageQuery) []store.UsageGroup {
	sums := map[string]*store.UsageGroup{}
	in := func(want, is string) bool { return want == "" || want == is }
	for _, r := range rows {
		if r.Hour < q.From || r.Hour >= q.To || !in(q.In.Project, r.Project) || !in(q.In.Template, r.Template) || !in(q.In.Sandbox, r.Sandbox) {
			continue
		}
		var g store.UsageGroup
		switch {
		case q.Hour:
			g.At = r.Hour
		case q.Day:
			g.At = r.Hour / 24
		}
		if q.Project {
			g.Project = r.Project
		}
		if q.Template {
			g.Template = r.Template
		}
		if q.Sandbox {
			g.Sandbox = r.Sandbox
		}
		for _, label := range q.Labels {
			value := ""
			switch {
			case label == "team" && strings.Contains(r.Labels, "red"):
				value = "red"
			case label == "team" && strings.Contains(r.Labels, "blue"):
				value = "blue"
			case label == "tier" && strings.Contains(r.Labels, "blue"):
				value = `a"b`
			}
			g.Labels = append(g.Labels, value)
		}
		key := fmt.Sprintf("%d|%q", g.At, append([]string{g.Project, g.Template, g.Sandbox}, g.Labels...))
		if sums[key] == nil {
			sums[key] = &g
		}
		sums[key].Counts.Add(r.Counts)
	}
	var list []store.UsageGroup
	for _, g := range sums {
		list = append(list, *g)
	}
	return list
}

func describe(list []store.UsageGroup) string {
	lines := make([]string, len(list))
	for i, g := range list {
		lines[i] = fmt.Sprintf("%d %q %q %q %q %v", g.At, g.Project, g.Template, g.Sandbox, strings.Join(g.Labels, "|"), g.Counts)
	}
	slices.SortFunc(lines, cmp.Compare)
	return strings.Join(lines, "\n")
}

func testBudgets(t *testing.T, f *fixture) {
	b := store.Budget{Kind: store.BudgetProject, ID: "p", Project: "p", Amount: 2.5, Warned: "2026-03"}
	tree := store.Budget{Kind: store.BudgetTree, ID: "p", Project: "q", Amount: 1e12, Exceeded: "life"}
	f.must(f.usage().PutBudget(f.ctx, b))
	f.must(f.usage().PutBudget(f.ctx, tree))
	b.Amount, b.Exceeded = 3.5, "2026-03"
	f.must(f.usage().PutBudget(f.ctx, b))
	f.reopen()
	list, err := f.usage().Budgets(f.ctx)
	f.must(err)
	slices.SortFunc(list, func(a, b store.Budget) int { return cmp.Compare(a.Kind, b.Kind) })
	if !slices.Equal(list, []store.Budget{b, tree}) {
		t.Errorf("got %+v", list)
	}
	b.Amount = 0
	f.must(f.usage().PutBudget(f.ctx, b))
	if list, err = f.usage().Budgets(f.ctx); err != nil || !slices.Equal(list, []store.Budget{tree}) {
		t.Errorf("got %+v, %v", list, err)
	}
}
