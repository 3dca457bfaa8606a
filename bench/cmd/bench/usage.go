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
	programs["usage"] = program{about: "questions about ten million records of use, of sandboxes that are there for a day; n is the records in thousands", run: measureUsage}
}

const (
	// usageRecords is the number of records, about a year's worth. A record is a sandbox in an hour.
	usageRecords  = 10_000_000
	usageProjects = 20
	// usageBegin is how many sandboxes begin in a day.
	usageBegin = usageProjects * 60
	// usagePages is how many pages of an answer are read in order.
	usagePages    = 3
	usageAtMostMS = 2000
)

// measureUsage measures the processor time of each page of each query, with what a service does around
// it: totals, prices, and JSON. The database is kept in BOTHY_BENCH_DB, if that is set, for the
// next time.
func measureUsage(ctx context.Context, _ *lab.Lab, b *book, n int) error {
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
	from := to - int64(orElse(1000*n, usageRecords))/(usageBegin*24)
	if errors.Is(statErr, os.ErrNotExist) {
		begun := time.Now()
		if err := fillUsage(path, from, to); err != nil {
			return err
		}
		fmt.Printf("made %s in %v\n", path, time.Since(begun).Round(time.Second))
	}
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
	var worst []float64
	for _, project := range []string{"", "project-7"} {
		for _, r := range ranges {
			for _, by := range usageQuestions {
				q := bothy.UsageQuery{From: r.from, To: r.to, GroupBy: strings.Split(by, ","), Project: project}
				pages, groups, err := askPages(ctx, meter, q)
				if err != nil {
					return fmt.Errorf("%s by %s: %w", r.name, by, err)
				}
				who := "all"
				if project != "" {
					who = "one"
				}
				name := fmt.Sprintf("usage.%s.%s.%s", who, r.name, by)
				result := bench.Single(name, "cpu-ms", pages, bench.Bound{AtMost: usageAtMostMS})
				result.Notes = append(result.Notes, fmt.Sprintf("%d groups were read", groups))
				b.Results = append(b.Results, result)
				fmt.Printf("%-60s %8d groups  page of 1000: %5.1f (at most %5.1f)\n", name, groups, bench.Percentile(pages, 50), bench.Percentile(pages, 100))
				worst = append(worst, bench.Percentile(pages, 100))
			}
		}
	}
	b.Results = append(b.Results, bench.Single("usage.slowest_pages", "cpu-ms", worst, bench.Bound{AtMost: usageAtMostMS}))
	fmt.Printf("the slowest page: %.1f ms\n", bench.Percentile(worst, 100))
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
func askPages(ctx context.Context, meter *metering.Meter, q bothy.UsageQuery) (pages []float64, groups int, err error) {
	for range usagePages {
		used := cpuTime()
		r, err := meter.Usage(ctx, q)
		if err == nil {
			err = json.NewEncoder(io.Discard).Encode(r)
		}
		if err != nil {
			return nil, 0, err
		}
		pages = append(pages, float64((cpuTime()-used).Microseconds())/1000)
		groups += len(r.Items)
		if q.Cursor = r.NextCursor; q.Cursor == "" {
			break
		}
	}
	return pages, groups, nil
}

// cpuTime is the processor time that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type stoppedClock struct{ at time.Time }

func (c stoppedClock) Now() store.Moment { return store.Moment{Wall: c.at, Boot: "bench"} }

// fillUsage writes what WriteUsage would, all at once.
func fillUsage(path string, from, to int64) error {
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
	for _, text := range []string{
		"PRAGMA journal_mode = WAL", "PRAGMA synchronous = OFF", "PRAGMA cache_size = -400000", "BEGIN",
		counter(usageProjects) + " INSERT INTO usage_projects SELECT 'project-' || n FROM c",
		counter(usageBegin*(to-from)) + fmt.Sprintf(` INSERT INTO usage_keys (id, project, template, sandbox, labels)
			SELECT n + 1, 'project-' || (n %% %d), 'template-' || (n / 7 %% 5), 'sbx' || printf('%%08x%%08x', n * 2654435761 %% 4294967296, n),
			'{"env":"env-' || (n / 11 %% 3) || '","task":"task-' || n || '","team":"team-' || (n / 3 %% 10) || '"}' FROM c`, usageProjects),
		counter(24) + fmt.Sprintf(` INSERT INTO usage_hours SELECT k.project, (%d + (k.id - 1) / %d) * 24 + (k.id * 7 + n) %% 24, k.id, %s FROM usage_keys k, c ORDER BY 1, 2, 3`,
			from, usageBegin, used),
		"INSERT INTO usage_days SELECT project, hour / 24, key, " + sums + " FROM usage_hours GROUP BY 1, 2, 3",
		"INSERT INTO usage_months SELECT project, " + month + ", key, " + sums + " FROM usage_days GROUP BY 1, 2, 3",
		"INSERT INTO usage_hour_totals SELECT h.project, h.hour, k.template, " + sums + " FROM usage_hours h JOIN usage_keys k ON k.id = h.key GROUP BY 1, 2, 3",
		"INSERT INTO usage_day_totals SELECT project, hour / 24, template, " + sums + " FROM usage_hour_totals GROUP BY 1, 2, 3",
		"INSERT INTO usage_month_totals SELECT project, " + month + ", template, " + sums + " FROM usage_day_totals GROUP BY 1, 2, 3",
		"COMMIT", "PRAGMA wal_checkpoint(TRUNCATE)",
	} {
		if _, err := db.Exec(text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}
