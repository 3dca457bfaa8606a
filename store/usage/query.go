// Package usage answers queries of usage, for every kind of database: it says which SQL to run,
// and merges the rows.
//
// Usage is stored as amounts of each meter by hour and key (project, template, sandbox, labels),
// and summed up by day and month. A query uses the largest periods that fit: whole months and
// days, and hours at both ends. The database sums up each of these parts; their groups are merged
// here. What belongs on the first page of the result is on the first page of its part, so that
// the database returns no more than a page of each.
package usage

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy/store"
)

// Meters are the columns of store.Counts.
const Meters = "vcpu, cpu, memory, egress, ingress, snapshots, templates"

// Database is where usage is stored: in tables usage_hours, usage_days and usage_months, whose keys
// are in usage_keys.
type Database struct {
	// Embedded says that the database runs in this process, so that reading every row costs less than
	// sorting them by their labels. Its tables begin with the project, its usage_projects lists the
	// projects, and usage_hour_totals and its like have the sums by project and template.
	Embedded bool
	// Rows runs a statement and adds each row.
	Rows func(s Statement, add func(Row) error) error
}

// Statement is SQL whose parameters are question marks.
type Statement struct {
	Text string
	Args []any
	into []func(*Row) any // of each column
}

// Into is where to scan a row of the result.
func (s Statement) Into(r *Row) (into []any) {
	for _, field := range s.into {
		into = append(into, field(r))
	}
	return append(into, Into(&r.Counts)...)
}

// Row is a row of a result.
type Row struct {
	store.UsageGroup
	// labels is the JSON of all labels, if any are grouped by.
	labels string
}

// Grains are the units of stored time, each with tables of its own.
var Grains = [...]string{hour, day, month}

const (
	hour  = "hour"
	day   = "day"
	month = "month"

	// hoursPerDay is exact: times are in UTC without leap seconds.
	hoursPerDay = 24
)

// Units returns what an hour belongs to, of each grain. Months are counted from year 0.
func Units(hour int64) [len(Grains)]int64 {
	day := floorDiv(hour, hoursPerDay)
	return [...]int64{hour, day, monthOf(day)}
}

func monthOf(day int64) int64 {
	t := time.Unix(day*hoursPerDay*3600, 0).UTC()
	return int64(t.Year())*12 + int64(t.Month()) - 1
}

// firstDay is the first day of a month.
func firstDay(month int64) int64 {
	return floorDiv(time.Date(int(month/12), time.Month(month%12+1), 1, 0, 0, 0, 0, time.UTC).Unix(), hoursPerDay*3600)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// part is a period in units of a grain. to is exclusive.
type part struct {
	grain    string
	from, to int64
}

// parts divides a query's period, in order. Parts may be empty.
func parts(q store.UsageQuery) []part {
	first, last := floorDiv(q.From+hoursPerDay-1, hoursPerDay), floorDiv(q.To, hoursPerDay)
	if q.Hour || first >= last {
		return []part{{hour, q.From, q.To}}
	}
	before, after := part{hour, q.From, first * hoursPerDay}, part{hour, last * hoursPerDay, q.To}
	firstMonth, lastMonth := monthOf(first-1)+1, monthOf(last)
	if q.Day || firstMonth >= lastMonth {
		return []part{before, {day, first, last}, after}
	}
	return []part{before, {day, first, firstDay(firstMonth)}, {month, firstMonth, lastMonth}, {day, firstDay(lastMonth), last}, after}
}

// group is the time of the group that a unit belongs to.
func (p part) group(unit int64, q store.UsageQuery) int64 {
	switch {
	case !q.Hour && !q.Day:
		return 0
	case p.grain == hour && !q.Hour:
		return floorDiv(unit, hoursPerDay)
	}
	return unit
}

// Query returns the groups of a query in the order of store.CompareUsage.
func (db Database) Query(q store.UsageQuery) ([]store.UsageGroup, error) {
	found := newGroups(q)
	timed := q.Hour || q.Day
	if q.After != nil && timed {
		from := q.After.At
		if !q.Hour {
			from *= hoursPerDay
		}
		q.From = max(q.From, from)
	}
	for _, p := range parts(q) {
		step := p.to - p.from
		if timed && q.Limit > 0 {
			step = 1
		}
		for from := p.from; from < p.to; {
			if timed && found.fullBefore(p.group(from, q)) {
				return found.page(), nil
			}
			had := len(found.list)
			slice := part{p.grain, from, min(from+step, p.to)}
			if err := db.sum(q, slice, found); err != nil {
				return nil, err
			}
			from = slice.to
			step = nextStep(step, len(found.list)-had, q.Limit-len(found.list))
		}
	}
	return found.page(), nil
}

// nextStep is the period likely to contain the missing groups, given how many the last one had.
func nextStep(step int64, found, missing int) int64 {
	if found <= 0 || missing <= 0 {
		return 8 * step
	}
	return max(1, min(8*step, step*int64(missing)/int64(found)+1))
}

// sum adds the groups of a period.
func (db Database) sum(q store.UsageQuery, p part, found *groups) error {
	return db.Rows(db.statement(q, p), func(r Row) (err error) {
		if len(q.Labels) > 0 {
			if r.Labels, err = labelsOf(r.labels, q.Labels); err != nil {
				return err
			}
		}
		found.add(r.UsageGroup)
		return nil
	})
}

// Into scans counts.
func Into(c *store.Counts) []any {
	into := make([]any, len(c))
	for i := range c {
		into[i] = &c[i]
	}
	return into
}

// labelsOf returns the values of the named labels. It is not left to the database, since not every
// one takes every JSON.
func labelsOf(text string, names []string) ([]string, error) {
	values := make([]string, len(names))
	if !strings.Contains(text, `\`) { // nothing is escaped, so that only a key is followed by a colon
		for i, n := range names {
			if _, after, found := strings.Cut(text, `"`+n+`":"`); found {
				values[i], _, _ = strings.Cut(after, `"`)
			}
		}
		return values, nil
	}
	var all map[string]string
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("the labels %q: %w", text, err)
	}
	for i, n := range names {
		values[i] = all[n]
	}
	return values, nil
}

// statement returns what sums up a period's groups, in the order of the result.
func (db Database) statement(q store.UsageQuery, p part) (s Statement) {
	unit := "u." + p.grain
	from, project, template := "usage_"+p.grain+"s u JOIN usage_keys k ON k.id = u.key", "k.project", "k.template"
	if db.Embedded {
		project = "u.project"
		if !q.Sandbox && q.In.Sandbox == "" && len(q.Labels) == 0 {
			from, template = "usage_"+p.grain+"_totals u", "u.template"
		}
	}
	where := []string{unit + " >= ?", unit + " < ?"}
	s.Args = []any{p.from, p.to}
	for _, w := range []struct{ column, is string }{{project, q.In.Project}, {template, q.In.Template}, {"k.sandbox", q.In.Sandbox}} {
		if w.is != "" {
			where, s.Args = append(where, w.column+" = ?"), append(s.Args, w.is)
		}
	}
	if db.Embedded && q.In.Project == "" {
		where = append(where, "u.project IN (SELECT name FROM usage_projects)")
	}
	if p.grain == hour && !q.Hour {
		unit += " / 24"
	}
	after := q.After
	if after == nil {
		after = &store.UsageGroup{}
	}
	var columns, by []string
	var start []any
	for _, c := range []struct {
		by     bool
		column string
		after  any
		into   func(*Row) any
	}{
		{q.Hour || q.Day, unit, after.At, func(r *Row) any { return &r.At }},
		{q.Project, project, after.Project, func(r *Row) any { return &r.Project }},
		{q.Sandbox, "k.sandbox", after.Sandbox, func(r *Row) any { return &r.Sandbox }},
		{q.Template, template, after.Template, func(r *Row) any { return &r.Template }},
		{len(q.Labels) > 0, "k.labels", nil, func(r *Row) any { return &r.labels }},
	} {
		if c.by {
			columns, s.into = append(columns, c.column), append(s.into, c.into)
			by = append(by, strconv.Itoa(len(columns)))
			if c.after != nil {
				start = append(start, c.after)
			}
		}
	}
	if q.After != nil && len(start) > 0 { // groups of other labels may follow in the same place
		where = append(where, "("+strings.Join(columns[:len(start)], ", ")+") >= (?"+strings.Repeat(", ?", len(start)-1)+")")
		s.Args = append(s.Args, start...)
	}
	total := "u." + strings.ReplaceAll(Meters, ", ", " + u.")
	grouped := len(q.Labels) == 0 || !db.Embedded
	for m := range strings.SplitSeq(Meters, ", ") {
		m = "u." + m
		if grouped {
			m = "CAST(sum(" + m + ") AS bigint)"
		}
		columns = append(columns, m)
	}
	if !grouped {
		where = append(where, total+" > 0")
	}
	s.Text = "SELECT " + strings.Join(columns, ", ") + " FROM " + from + " WHERE " + strings.Join(where, " AND ")
	if !grouped {
		return s
	}
	if len(by) > 0 {
		s.Text += " GROUP BY " + strings.Join(by, ", ")
	}
	s.Text += " HAVING sum(" + total + ") > 0"
	if len(by) > 0 {
		s.Text += " ORDER BY " + strings.Join(by, ", ")
	}
	if q.Limit > 0 && len(q.Labels) == 0 {
		s.Text += " LIMIT " + strconv.Itoa(q.Limit+1) // plus the last of the previous page
	}
	return s
}
