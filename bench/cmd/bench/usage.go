package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
	"github.com/bothy-dev/bothy/metering"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/sqlite"
)

func init() {
	for _, shape := range []usageShape{
		{"usage", "sandboxes that are there for a day", 20, 60, 1},
		{"usage-long", "sandboxes that are there for the whole year", 20, 60, 365},
		{"usage-short", "sandboxes that are there for an hour", 20, 1440, 0},
	} {
		programs[shape.name] = program{about: "questions about ten million records of use, of " + shape.about + "; n is the records in thousands", run: shape.run}
	}
}

// usageShape is the shape of a database of records. A record is a sandbox in an hour.
type usageShape struct {
	name, about string
	projects    int64
	perDay      int64 // sandboxes of a project that begin in a day
	days        int64 // for which each is there; 0 is for an hour
}

const (
	// usageRecords is the number of records, about a year's worth.
	usageRecords = 10_000_000
	// usagePages is how many pages of an answer are read in order, and then as many larger ones.
	usagePages    = 12
	usageLarge    = 10_000
	usageRepeats  = 3
	usageAtMostMS = 50
)

// run measures the processor time of each page of each query, with what a service does around
// it: totals, prices, and JSON. The database is kept in BOTHY_BENCH_DB, if that is set, for the
// next time.
func (u usageShape) run(ctx context.Context, _ *lab.Lab, b *book, n int) error {
	path := os.Getenv("BOTHY_BENCH_DB")
	if path == "" {
		dir, err := os.MkdirTemp("", "bothy-bench-usage-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		path = filepath.Join(dir, "usage.db")
	}
	end := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	_, statErr := os.Stat(path)
	db, err := sqlite.Open(ctx, path)
	if err != nil {
		return err
	}
	defer db.Close()
	to := end.Unix() / 86400
	from := to - u.length(orElse(1000*n, usageRecords))
	if errors.Is(statErr, os.ErrNotExist) {
		begun := time.Now()
		if err := u.fill(path, from, to); err != nil {
			return err
		}
		fmt.Printf("made %s in %v\n", path, time.Since(begun).Round(time.Second))
	}
	begun, used := time.Now(), cpuTime()
	for more := true; more; {
		if more, err = db.PackUsage(ctx, to*24); err != nil {
			return err
		}
	}
	fmt.Printf("packed it in %v, with %v of the processor\n", time.Since(begun).Round(time.Second), (cpuTime() - used).Round(time.Second))
	meter, err := metering.New(ctx, metering.Options{
		Store: db, Rates: bothy.Rates{Currency: "EUR", VCPUHour: 0.05, MemoryGBHour: 0.01}, Clock: stoppedClock{end},
		Project: func(context.Context, string) error { return nil },
	})
	if err != nil {
		return err
	}
	ctx = bothy.WithCaller(ctx, &bothy.Caller{ProjectID: bothy.DefaultProject, Scopes: []bothy.Scope{bothy.ScopeAdmin, bothy.ScopeSandboxesRead}})
	ranges := []struct {
		name     string
		from, to time.Time
	}{
		{"day", end.AddDate(0, 0, -2), end.AddDate(0, 0, -1)},
		{"month", end.Add(-30*24*time.Hour - 5*time.Hour), end.Add(-5 * time.Hour)}, // not at the ends of days
		{"year", time.Unix(from*86400, 0).UTC(), end},
	}
	var worst, worstLarge []float64
	for _, project := range []string{"", "project-7"} {
		for _, r := range ranges {
			for _, by := range usageQuestions {
				q := bothy.UsageQuery{From: r.from, To: r.to, GroupBy: strings.Split(by, ","), Project: project}
				pages, large, groups, err := askPages(ctx, meter, q)
				if err != nil {
					return fmt.Errorf("%s by %s: %w", r.name, by, err)
				}
				who := "all"
				if project != "" {
					who = "one"
				}
				name := fmt.Sprintf("%s.%s.%s.%s", u.name, who, r.name, by)
				result := bench.Single(name, "cpu-ms", pages, bench.Bound{AtMost: usageAtMostMS})
				result.Notes = append(result.Notes, fmt.Sprintf("%d groups were read", groups))
				b.Results = append(b.Results, result)
				fmt.Printf("%-60s %8d groups  page of 1000: %5.1f (at most %5.1f)  of 10000: %5.1f\n", name, groups, bench.Percentile(pages, 50), bench.Percentile(pages, 100), bench.Percentile(large, 100))
				worst = append(worst, bench.Percentile(pages, 100))
				worstLarge = append(worstLarge, bench.Percentile(large, 100))
			}
		}
	}
	b.Results = append(b.Results,
		bench.Single(u.name+".slowest_pages", "cpu-ms", worst, bench.Bound{AtMost: usageAtMostMS}),
		bench.Single(u.name+".slowest_pages_of_10000", "cpu-ms", worstLarge))
	fmt.Printf("the slowest page of 1000: %.1f ms, of 10000: %.1f ms\n", bench.Percentile(worst, 100), bench.Percentile(worstLarge, 100))
	return nil
}

var usageQuestions = []string{
	"day", "hour", "project", "template", "sandbox", "label:team", "label:task",
	"day,project", "day,template", "day,sandbox", "day,label:team", "day,label:task", "day,project,template",
	"hour,project", "hour,sandbox", "hour,label:team", "hour,project,template",
	"project,sandbox", "template,sandbox", "project,label:team", "project,template,label:env",
	"label:team,label:env", "label:env,label:team,label:task", "day,label:team,label:env", "hour,label:env,label:team", "sandbox,label:team",
}

// askPages reads an answer, and returns the processor time of its pages in ms.
func askPages(ctx context.Context, meter *metering.Meter, q bothy.UsageQuery) (pages, large []float64, groups int, err error) {
	for n := 0; n < 2*usagePages; n++ {
		into := &pages
		if n >= usagePages {
			q.Limit, into = usageLarge, &large
		}
		var r *bothy.UsageReport
		var took []float64
		for range usageRepeats {
			used := cpuTime()
			if r, err = meter.Usage(ctx, q); err == nil {
				err = json.NewEncoder(io.Discard).Encode(r)
			}
			if err != nil {
				return nil, nil, 0, err
			}
			took = append(took, float64((cpuTime()-used).Microseconds())/1000)
		}
		*into = append(*into, bench.Percentile(took, 50))
		groups += len(r.Items)
		if q.Cursor = r.NextCursor; q.Cursor == "" {
			break
		}
	}
	return pages, large, groups, nil
}

// cpuTime is the processor time that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type stoppedClock struct{ at time.Time }

func (c stoppedClock) Now() store.Moment { return store.Moment{Wall: c.at, Boot: "bench"} }

// length is the number of days that so many records span.
func (u usageShape) length(records int) int64 {
	switch {
	case u.days > 1:
		return min(u.days, int64(records)/(u.projects*u.perDay*24))
	case u.days == 0:
		return int64(records) / (u.projects * u.perDay)
	}
	return int64(records) / (u.projects * u.perDay * 24)
}

// fill writes what WriteUsage would, all at once.
func (u usageShape) fill(path string, from, to int64) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	const (
		sums  = "sum(vcpu), sum(cpu), sum(memory), sum(egress), sum(ingress), sum(snapshots), sum(templates)"
		month = "strftime('%Y', day * 86400, 'unixepoch') * 12 + strftime('%m', day * 86400, 'unixepoch') - 1"
		used  = "3600000000, 1200000000 + k.id % 9973, 512 * 3600000, k.id * 10, k.id * 20, 0, 0"
	)
	counter := func(n int64) string {
		return fmt.Sprintf("WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n < %d)", n-1)
	}
	begin := u.projects * u.perDay // sandboxes that begin together
	keys, hours := begin*(to-from), counter(24)+fmt.Sprintf(` INSERT INTO usage_hours SELECT k.project, (%d + (k.id - 1) / %d) * 24 + (k.id * 7 + n) %% 24, k.id, %s FROM usage_keys k, c`, from, begin, used)
	switch {
	case u.days > 1:
		keys, hours = begin, counter((to-from)*24)+fmt.Sprintf(` INSERT INTO usage_hours SELECT k.project, %d + n, k.id, %s FROM usage_keys k, c`, from*24, used)
	case u.days == 0:
		hours = fmt.Sprintf(`INSERT INTO usage_hours SELECT k.project, (%d + (k.id - 1) / %d) * 24 + (k.id - 1) %% %d * 24 / %d, k.id, %s FROM usage_keys k`, from, begin, begin, begin, used)
	}
	for _, text := range []string{
		"PRAGMA journal_mode = WAL", "PRAGMA synchronous = OFF", "PRAGMA cache_size = -400000", "BEGIN",
		counter(u.projects) + " INSERT INTO usage_projects SELECT 'project-' || n FROM c",
		counter(keys) + fmt.Sprintf(` INSERT INTO usage_keys (id, project, template, sandbox, labels)
			SELECT n + 1, 'project-' || (n %% %d), 'template-' || (n / 7 %% 5), 'sbx' || printf('%%08x%%08x', n * 2654435761 %% 4294967296, n),
			'{"env":"env-' || (n / 11 %% 3) || '","task":"task-' || n || '","team":"team-' || (n / 3 %% 10) || '"}' FROM c`, u.projects),
		hours + " ORDER BY 1, 2, 3",
		"INSERT INTO usage_days SELECT project, hour / 24, key, " + sums + " FROM usage_hours GROUP BY 1, 2, 3",
		"INSERT INTO usage_hour_totals SELECT h.project, h.hour, k.template, " + sums + " FROM usage_hours h JOIN usage_keys k ON k.id = h.key GROUP BY 1, 2, 3",
		"INSERT INTO usage_day_totals SELECT project, hour / 24, template, " + sums + " FROM usage_hour_totals GROUP BY 1, 2, 3",
		"INSERT INTO usage_month_totals SELECT project, " + month + ", template, " + sums + " FROM usage_day_totals GROUP BY 1, 2, 3",
		"INSERT INTO usage_hour_totals SELECT '', hour, template, " + sums + " FROM usage_hour_totals GROUP BY 2, 3",
		"INSERT INTO usage_day_totals SELECT '', day, template, " + sums + " FROM usage_day_totals GROUP BY 2, 3",
		"INSERT INTO usage_month_totals SELECT '', month, template, " + sums + " FROM usage_month_totals GROUP BY 2, 3",
		"COMMIT", "PRAGMA wal_checkpoint(TRUNCATE)",
	} {
		if _, err := db.Exec(text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}
