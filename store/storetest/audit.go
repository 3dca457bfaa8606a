package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

func testAudit(t *testing.T, f *fixture) {
	ends := func(want store.AuditEnds) {
		t.Helper()
		got, err := f.AuditEnds(f.ctx)
		f.must(err)
		equal(t, got, want)
	}
	line := func(id int64) store.AuditLine {
		return store.AuditLine{
			ID: id, Time: epoch.Add(time.Duration(id) * time.Hour), ProjectID: "p", TokenID: "k", SandboxID: fmt.Sprintf("s%d", id%2),
			Action: "exec", Status: 200, Record: fmt.Sprintf("{%d}", id), Hash: fmt.Sprintf("h%d", id),
		}
	}
	ids := func(filter bothy.AuditFilter) (got []int64) {
		t.Helper()
		filter.Limit = 10
		lines, err := f.AuditLines(f.ctx, filter)
		f.must(err)
		for _, l := range lines {
			if w := line(l.ID); l.Record != w.Record || l.Hash != w.Hash {
				t.Errorf("line %d came back as %+v", l.ID, l)
			}
			got = append(got, l.ID)
		}
		return got
	}
	ends(store.AuditEnds{})
	f.must(f.AppendAudit(f.ctx, []store.AuditLine{line(1), line(2), line(3)}))
	if err := f.AppendAudit(f.ctx, []store.AuditLine{line(4), line(3)}); err == nil {
		t.Error("a line was written over")
	}
	ends(store.AuditEnds{LastID: 3, LastHash: "h3"})
	equal(t, ids(bothy.AuditFilter{}), []int64{3, 2, 1})
	equal(t, ids(bothy.AuditFilter{Oldest: true, Cursor: 1}), []int64{2, 3})
	equal(t, ids(bothy.AuditFilter{SandboxID: "s1", ProjectID: "p", TokenID: "k", Action: "exec"}), []int64{3, 1})
	equal(t, ids(bothy.AuditFilter{Since: epoch.Add(2 * time.Hour), Until: epoch.Add(3 * time.Hour)}), []int64{2})
	equal(t, ids(bothy.AuditFilter{Refused: true}), []int64{})
	for _, want := range []int{1, 1, 0} { // at most one at a time
		n, err := f.DeleteAuditBefore(f.ctx, epoch.Add(3*time.Hour), 1)
		f.must(err)
		equal(t, n, want)
	}
	ends(store.AuditEnds{AfterID: 2, AfterHash: "h2", LastID: 3, LastHash: "h3"})
	f.reopen()
	ends(store.AuditEnds{AfterID: 2, AfterHash: "h2", LastID: 3, LastHash: "h3"})
	equal(t, ids(bothy.AuditFilter{}), []int64{3})
}
