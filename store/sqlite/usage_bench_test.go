package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/sqlite"
)

// The shape of the database that queries are measured on: a record is a sandbox
// in an hour. Ten million of them are two years of 5 teams, or two months of 50.
const (
	benchProjects    = 20
	benchTemplates   = 5
	benchPerDay      = 60 // sandboxes of a project that begin in a day
	benchHours       = 24 // for which each of them is there
	benchDefaultRows = 10_000_000

	benchMonth = "strftime('%Y', day * 86400, 'unixepoch') * 12 + strftime('%m', day * 86400, 'unixepoch') - 1"
)

// benchUsage opens a database with so many records as BOTHY_BENCH_ROWS says, or
// ten million. It is kept in BOTHY_BENCH_DB, if that is set, for the next time.
func benchUsage(b *testing.B) (s *sqlite.Store, from, to int64) {
	b.Helper()
	rows := benchDefaultRows
	if v := os.Getenv("BOTHY_BENCH_ROWS"); v != "" {
		rows, _ = strconv.Atoi(v)
	}
	path := os.Getenv("BOTHY_BENCH_DB")
	if path == "" {
		path = filepath.Join(b.TempDir(), "usage.db")
	}
	days := int64(rows / (benchProjects * benchPerDay * benchHours))
	to = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Unix() / 86400
	from = to - days
	_, err := os.Stat(path)
	s = open(b, path)
	b.Cleanup(func() { s.Close() })
	if err != nil {
		begun := time.Now()
		fillUsage(b, path, from, to)
		b.Logf("filled %s in %v", path, time.Since(begun).Round(time.Second))
	}
	return s, from * 24, to * 24
}

// fillUsage writes what WriteUsage would, all at once.
func fillUsage(b *testing.B, path string, from, to int64) {
	b.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	sums := "sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates)"
	counter := func(n int64) string {
		return fmt.Sprintf("WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n < %d)", n-1)
	}
	keys := (to - from) * benchProjects * benchPerDay
	for _, text := range []string{
		"PRAGMA journal_mode = WAL", "PRAGMA synchronous = OFF", "PRAGMA cache_size = -400000", "BEGIN",
		counter(benchProjects) + " INSERT INTO usage_projects SELECT 'project-' || n FROM c",
		counter(keys) + fmt.Sprintf(` INSERT INTO usage_keys (id, project, template, sandbox, labels)
			SELECT n + 1, 'project-' || (n %% %d), 'template-' || (n / 7 %% %d), 'sbx' || n,
			'{"team":"team-' || (n / 3 %% 10) || '","task":"task-' || n || '"}' FROM c`, benchProjects, benchTemplates),
		"INSERT INTO usage_key_labels SELECT id, 'team', json_extract(labels, '$.team') FROM usage_keys",
		"INSERT INTO usage_key_labels SELECT id, 'task', json_extract(labels, '$.task') FROM usage_keys",
		counter(benchHours) + fmt.Sprintf(` INSERT INTO usage_hours SELECT k.project, (%d + (k.id - 1) / %d) * 24 + (k.id * 7 + n) %% 24, k.id,
			3600000000, 1200000000, 512 * 3600000, k.id * 10, k.id * 20, 0, 0 FROM usage_keys k, c ORDER BY 1, 2, 3`, from, benchProjects*benchPerDay),
		"INSERT INTO usage_days SELECT project, hour / 24, key, " + sums + " FROM usage_hours GROUP BY 1, 2, 3",
		"INSERT INTO usage_hour_totals SELECT h.project, h.hour, k.template, " + sums + " FROM usage_hours h JOIN usage_keys k ON k.id = h.key GROUP BY 1, 2, 3",
		"INSERT INTO usage_day_totals SELECT project, hour / 24, template, " + sums + " FROM usage_hour_totals GROUP BY 1, 2, 3",
		"INSERT INTO usage_month_totals SELECT project, " + benchMonth + ", template, " + sums + " FROM usage_day_totals GROUP BY 1, 2, 3",
		"INSERT INTO usage_day_labels SELECT d.project, l.label, d.day, l.value, k.template, " + sums +
			" FROM usage_days d JOIN usage_keys k ON k.id = d.key JOIN usage_key_labels l ON l.key = d.key GROUP BY 1, 2, 3, 4, 5",
		"INSERT INTO usage_month_labels SELECT project, label, " + benchMonth + ", value, template, " + sums + " FROM usage_day_labels GROUP BY 1, 2, 3, 4, 5",
		"INSERT INTO usage_hour_totals SELECT '', hour, template, " + sums + " FROM usage_hour_totals GROUP BY 2, 3",
		"INSERT INTO usage_day_totals SELECT '', day, template, " + sums + " FROM usage_day_totals GROUP BY 2, 3",
		"INSERT INTO usage_month_totals SELECT '', month, template, " + sums + " FROM usage_month_totals GROUP BY 2, 3",
		"INSERT INTO usage_day_labels SELECT '', label, day, value, template, " + sums + " FROM usage_day_labels GROUP BY 2, 3, 4, 5",
		"INSERT INTO usage_month_labels SELECT '', label, month, value, template, " + sums + " FROM usage_month_labels GROUP BY 2, 3, 4, 5",
		"COMMIT", "ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)",
	} {
		if _, err := db.Exec(text); err != nil {
			b.Fatalf("%s: %v", text, err)
		}
	}
}

// BenchmarkUsage measures queries over ten million records:
//
//	BOTHY_BENCH_DB=/var/tmp/usage.db go test ./store/sqlite -run '^$' -bench Usage
func BenchmarkUsage(b *testing.B) {
	s, from, to := benchUsage(b)
	all := func(q store.UsageQuery) store.UsageQuery { q.From, q.To = from, to; return q }
	month := func(q store.UsageQuery) store.UsageQuery {
		q.From, q.To = to-30*24-5, to-5 // not at the ends of days
		return q
	}
	one := store.UsageKey{Project: "project-7"}
	for _, c := range []struct {
		name string
		q    store.UsageQuery
	}{
		{"all/day", all(store.UsageQuery{Day: true})},
		{"all/project", all(store.UsageQuery{Project: true})},
		{"all/template", all(store.UsageQuery{Template: true})},
		{"all/day,project,template", all(store.UsageQuery{Day: true, Project: true, Template: true})},
		{"all/label", all(store.UsageQuery{Labels: []string{"team"}})},
		{"month/day,project", month(store.UsageQuery{Day: true, Project: true})},
		{"month/hour", month(store.UsageQuery{Hour: true})},
		{"month/label", month(store.UsageQuery{Labels: []string{"team"}})},
		{"month/sandbox", month(store.UsageQuery{Sandbox: true})},
		{"project/all/day", all(store.UsageQuery{Day: true, In: one})},
		{"project/all/label", all(store.UsageQuery{Labels: []string{"team"}, In: one})},
		{"project/all/sandbox", all(store.UsageQuery{Sandbox: true, In: one})},
		{"project/month/hour", month(store.UsageQuery{Hour: true, In: one})},
		{"project/month/day,label", month(store.UsageQuery{Day: true, Labels: []string{"team"}, In: one})},
		{"project/month/two-labels", month(store.UsageQuery{Labels: []string{"team", "task"}, In: one})},
		{"project/month/sandbox", month(store.UsageQuery{Sandbox: true, In: one})},
		{"project/month/one-sandbox", month(store.UsageQuery{Day: true, In: store.UsageKey{Project: "project-7", Sandbox: "sbx410087"}})},
	} {
		b.Run(c.name, func(b *testing.B) {
			n := 0
			used := cpuTime(b)
			for b.Loop() {
				groups, err := s.QueryUsage(context.Background(), c.q)
				if err != nil {
					b.Fatal(err)
				}
				n = len(groups)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/query")
			// A busy machine makes an answer late; this it does not change.
			b.ReportMetric(float64((cpuTime(b)-used).Microseconds())/1000/float64(b.N), "cpu-ms/query")
			b.ReportMetric(float64(n), "groups")
		})
	}
}

// cpuTime is the processor time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkWriteUsage writes what 64 running sandboxes have used in ten seconds.
func BenchmarkWriteUsage(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "b.db"))
	defer s.Close()
	for n := 0; b.Loop(); n++ {
		batch := store.UsageBatch{ID: fmt.Sprint(n)}
		for i := range 64 {
			id := fmt.Sprint("sbx", i)
			batch.Rows = append(batch.Rows, store.UsageRow{
				UsageKey: store.UsageKey{Project: "p", Template: "t", Sandbox: id, Labels: `{"team":"red"}`}, Hour: 500000,
				Counts: store.Counts{1, 2, 3, 4, 5, 6, 7},
			})
			batch.Marks = append(batch.Marks, store.UsageMark{Sandbox: id})
		}
		if err := s.WriteUsage(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
}
