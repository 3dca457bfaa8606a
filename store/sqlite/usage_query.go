package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/usage"
)

// A query uses the largest periods that fit: whole months and days from monthly and daily data,
// and hours for the rest at both ends. Queries by template and project use the tables of
// totals, those by sandbox and label the packs.

// QueryUsage implements store.Usage.
func (s *Store) QueryUsage(ctx context.Context, q store.UsageQuery) (list []store.UsageGroup, err error) {
	found := usage.NewGroups(q)
	if after := q.After; after != nil && (q.Hour || q.Day) {
		from := after.At
		if !q.Hour {
			from *= hoursPerDay
		}
		q.From = max(q.From, from)
	}
	if q.Sandbox || len(q.Labels) > 0 || q.In.Sandbox != "" {
		err = s.queryPacks(ctx, q, found)
	} else {
		err = s.queryTotals(ctx, q, found)
	}
	if d, damaged := errors.AsType[damagedPack](err); damaged {
		if err = s.dropPack(ctx, packAt(d)); err == nil {
			return s.QueryUsage(ctx, q)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("store: query usage: %w", err)
	}
	return found.Page(), nil
}

// usagePart is a period in units of a grain. to is exclusive.
type usagePart struct {
	grain    string
	from, to int64
}

// usageParts divides a query's period, in order. Months are used only before the day allDays.
func usageParts(q store.UsageQuery, allDays int64) []usagePart {
	firstDay, lastDay := floorDiv(q.From+hoursPerDay-1, hoursPerDay), floorDiv(q.To, hoursPerDay)
	if q.Hour || firstDay >= lastDay {
		return []usagePart{{grainHour, q.From, q.To}}
	}
	before, after := usagePart{grainHour, q.From, firstDay * hoursPerDay}, usagePart{grainHour, lastDay * hoursPerDay, q.To}
	first, last := monthOf(firstDay-1)+1, monthOf(min(lastDay, allDays))
	if q.Day || first >= last {
		return []usagePart{before, {grainDay, firstDay, lastDay}, after}
	}
	return []usagePart{before, {grainDay, firstDay, dayOf(first)}, {grainMonth, first, last}, {grainDay, dayOf(last), lastDay}, after}
}

const (
	// never is after any day.
	never = 1 << 24
	// firstSlice is the period that is searched first for a page.
	firstSlice = 32
)

// queryTotals answers a query from the tables of totals.
func (s *Store) queryTotals(ctx context.Context, q store.UsageQuery, found *usage.Groups) error {
	projects := []string{q.In.Project} // or everybody
	if q.Project && q.In.Project == "" {
		var err error
		if projects, err = s.usageProjects(ctx); err != nil {
			return err
		}
	}
	for _, p := range usageParts(q, never) {
		step := p.to - p.from
		if q.Limit > 0 && (q.Hour || q.Day && p.grain == grainDay) {
			step = int64(max(1, min(firstSlice, q.Limit/max(1, len(projects)))))
		}
		for from := p.from; from < p.to; {
			if (q.Hour || q.Day) && found.FullBefore(p.group(from, q)) {
				return nil
			}
			had := len(found.List)
			slice := usagePart{p.grain, from, min(from+step, p.to)}
			for _, project := range projects {
				if err := s.totals(ctx, q, slice, project, found); err != nil {
					return err
				}
			}
			from = slice.to
			if q.Limit > 0 {
				step = nextSlice(step, len(found.List)-had, q.Limit-len(found.List))
			}
		}
	}
	return nil
}

// nextSlice is the period likely to contain the missing groups, given how many the previous
// slice had.
func nextSlice(step int64, found, missing int) int64 {
	if found <= 0 || missing <= 0 {
		return 2 * step
	}
	return max(1, min(8*step, step*int64(missing)/int64(found)+1))
}

// group is the time of the group that a unit belongs to.
func (p usagePart) group(unit int64, q store.UsageQuery) int64 {
	switch {
	case !q.Hour && !q.Day:
		return 0
	case p.grain == grainHour && !q.Hour:
		return floorDiv(unit, hoursPerDay)
	}
	return unit
}

// totals sums up a period of one project, or of all.
func (s *Store) totals(ctx context.Context, q store.UsageQuery, p usagePart, project string, found *usage.Groups) error {
	var of store.UsageGroup
	var c store.Counts
	var columns, by []string
	var into []any
	if q.Hour || q.Day {
		at := p.grain
		if p.grain == grainHour && !q.Hour {
			at = "hour / 24"
		}
		by, into = append(by, at), append(into, &of.At)
	}
	if q.Template {
		by, into = append(by, "template"), append(into, &of.Template)
	}
	if q.Project {
		of.Project = project
	}
	columns = append(slices.Clone(by), sums(""))
	where := "project = ? AND " + p.grain + " >= ? AND " + p.grain + " < ?"
	args := []any{project, p.from, p.to}
	if q.In.Template != "" {
		where, args = where+" AND template = ?", append(args, q.In.Template)
	}
	text := "SELECT " + strings.Join(columns, ", ") + " FROM usage_" + p.grain + "_totals WHERE " + where
	if len(by) > 0 {
		text += " GROUP BY " + strings.Join(by, ", ")
	} else {
		text += " HAVING count(*) > 0"
	}
	rows, err := s.read.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	into = append(into, scanCounts(&c)...)
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if c != (store.Counts{}) {
			found.Add(of, c)
		}
	}
	return rows.Err()
}

// sums is the SQL for the sums of all meters.
func sums(table string) string {
	list := strings.Split(meters, ", ")
	for i, m := range list {
		list[i] = "sum(" + table + m + ")"
	}
	return strings.Join(list, ", ")
}

func (s *Store) usageProjects(ctx context.Context) ([]string, error) {
	return s.words(ctx, `SELECT name FROM usage_projects ORDER BY name`)
}

func (s *Store) words(ctx context.Context, text string, args ...any) (list []string, err error) {
	rows, err := s.read.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var word string
		if err := rows.Scan(&word); err != nil {
			return nil, err
		}
		list = append(list, word)
	}
	return list, rows.Err()
}

// cell is a query to the packs of one period: from and to are hours for the
// grain of hours, and days for the others.
type cell struct {
	grain    string
	at       int64
	from, to int64
	// group is the time of its groups, or of the first one.
	group int64
	// rows says that there is no pack, only rows.
	rows bool
}

// queryPacks answers a query from the packs, and from rows where there are none.
func (s *Store) queryPacks(ctx context.Context, q store.UsageQuery, found *usage.Groups) error {
	packed, err := s.packed(ctx)
	if err != nil {
		return err
	}
	projects := []string{q.In.Project}
	switch {
	case q.In.Sandbox != "":
		projects, err = s.words(ctx, `SELECT DISTINCT project FROM usage_keys WHERE sandbox = ? AND (project = ? OR ? = '')`, q.In.Sandbox, q.In.Project, q.In.Project)
	case q.In.Project == "":
		projects, err = s.usageProjects(ctx)
	}
	if err == nil {
		err = s.clip(ctx, &q)
	}
	if err != nil || len(projects) == 0 {
		return err
	}
	for _, c := range cells(q, packed) {
		if found.Tighten() && (q.Hour || q.Day) && found.FullBefore(c.group) {
			return nil
		}
		if err := s.queryCell(ctx, q, c, found.Within(q, projects), found); err != nil {
			return err
		}
	}
	return nil
}

// clip restricts the query to the months with usage.
func (s *Store) clip(ctx context.Context, q *store.UsageQuery) error {
	var first, last sql.NullInt64
	rows, err := s.queryAgain(ctx, `SELECT (SELECT min(hour) FROM usage_hour_totals WHERE project = ?1), (SELECT max(hour) FROM usage_hour_totals WHERE project = ?1)`, everybody)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&first, &last); err != nil {
			return err
		}
	}
	q.From = max(q.From, dayOf(monthOf(floorDiv(first.Int64, hoursPerDay)))*hoursPerDay)
	q.To = min(q.To, dayOf(monthOf(floorDiv(last.Int64, hoursPerDay))+1)*hoursPerDay)
	return rows.Err()
}

// maxRows is how many hours or days of rows are read at a time.
const maxRows = 128

// cells divides a query's period by packs, in order.
func cells(q store.UsageQuery, packed int64) (list []cell) {
	today := floorDiv(packed, hoursPerDay) // not fully packed yet
	for _, p := range usageParts(q, today) {
		for at := p.from; at < p.to; {
			c := cell{grain: p.grain, at: at, from: at, to: at + 1, group: p.group(at, q)}
			switch {
			case p.grain == grainMonth:
				c.from, c.to = dayOf(at), dayOf(at+1)
			case p.grain == grainDay && at == today:
				hours := usagePart{grainHour, at * hoursPerDay, (at + 1) * hoursPerDay}
				list = append(list, hourCells(q, hours, packed)...)
				at++
				continue
			case p.grain == grainDay && at > today:
				c.rows, c.to = true, min(p.to, at+maxRows)
			case p.grain == grainHour:
				list = append(list, hourCells(q, p, packed)...)
				at = p.to
				continue
			}
			list = append(list, c)
			if at = c.to; p.grain == grainMonth {
				at = c.at + 1
			}
		}
	}
	return list
}

func hourCells(q store.UsageQuery, p usagePart, packed int64) (list []cell) {
	for at := p.from; at < p.to; {
		day := floorDiv(at, hoursPerDay)
		c := cell{grain: grainHour, at: day, from: at, to: min(p.to, (day+1)*hoursPerDay), group: p.group(at, q)}
		switch {
		case at >= packed && !q.Day && !q.Hour:
			c.rows, c.to = true, min(p.to, at+maxRows)
		case at >= packed:
			c.rows = true
		default:
			c.to = min(c.to, packed)
		}
		list = append(list, c)
		at = c.to
	}
	return list
}

// queryCell sums up a cell for several projects.
func (s *Store) queryCell(ctx context.Context, q store.UsageQuery, c cell, projects []string, found *usage.Groups) error {
	if c.rows {
		for _, project := range projects {
			if err := s.queryRecords(ctx, q, c, project, found); err != nil {
				return err
			}
		}
		return nil
	}
	t := usage.Stretch{At: c.group}
	if c.grain == grainHour {
		t.From, t.To = c.from-c.at*hoursPerDay, c.to-c.at*hoursPerDay
		if q.Hour {
			t.At, t.Split = c.at*hoursPerDay, true
		}
	}
	whole, unpacked := projects, []string(nil)
	var err error
	if c.grain == grainMonth && !q.Sandbox && q.In.Sandbox == "" {
		whole, unpacked, err = s.eachPack(ctx, q, c, projects, true, found, t)
	}
	if err == nil && len(whole) > 0 {
		var more []string
		_, more, err = s.eachPack(ctx, q, c, whole, false, found, t)
		unpacked = append(unpacked, more...)
	}
	for _, project := range unpacked {
		if err == nil {
			err = s.queryRecords(ctx, q, c, project, found)
		}
	}
	return err
}

// queryRecords sums up a cell that is not packed.
func (s *Store) queryRecords(ctx context.Context, q store.UsageQuery, c cell, project string, found *usage.Groups) error {
	records, err := s.records(ctx, c, project)
	if p := usage.PackRecords(project, records, c.grain == grainHour || c.rows); p != nil && err == nil {
		split := q.Hour || q.Day && c.grain == grainDay && c.rows
		p.Scan(q, usage.Stretch{To: c.to - c.from, At: c.group, Split: split}, found)
	}
	return err
}

// eachPack sums up the packs of a cell, or their digests. It returns the projects whose digest
// cannot answer the query, and those without a pack, whose rows must be read.
func (s *Store) eachPack(ctx context.Context, q store.UsageQuery, c cell, projects []string, digests bool, found *usage.Groups, t usage.Stretch) (whole, unpacked []string, err error) {
	var parts []string
	if c.grain == grainHour {
		parts = append(parts, usage.PartHour)
	}
	if q.Template || q.In.Template != "" {
		parts = append(parts, usage.PartTemplate)
	}
	if q.Sandbox || q.In.Sandbox != "" {
		parts = append(parts, usage.PartSandbox)
	}
	for _, label := range q.Labels {
		parts = append(parts, usage.PartLabel+label)
	}
	parts = append(parts, usage.PartCounts)
	text, args := packSQL(q, c, projects, parts, digests, found)
	rows, err := s.queryAgain(ctx, text, args...)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	var project string
	data, into := make([]sql.RawBytes, len(parts)), []any{&project}
	for i := range data {
		into = append(into, &data[i])
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, nil, err
		}
		switch {
		case data[len(data)-1] == nil:
			unpacked = append(unpacked, project)
		case slices.ContainsFunc(data, isElsewhere):
			whole = append(whole, project)
		default:
			p := &usage.Pack{Project: project}
			for i, part := range parts {
				if data[i] != nil && !p.Set(part, data[i]) {
					return nil, nil, damagedPack{c.grain, c.at, project}
				}
			}
			if p.Lacks(q, c.grain == grainHour) {
				return nil, nil, damagedPack{c.grain, c.at, project}
			}
			p.Scan(q, t, found)
		}
	}
	return whole, unpacked, rows.Err()
}

// maxQueries limits the cached statements for packs.
const maxQueries = 128

// queryAgain is for statements that a query runs many times: it prepares them.
func (s *Store) queryAgain(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	s.usage.mu.Lock()
	st, known := s.usage.queries[text]
	room := len(s.usage.queries) < maxQueries
	s.usage.mu.Unlock()
	if !known && !room {
		return s.read.QueryContext(ctx, text, args...)
	}
	if !known {
		made, err := s.read.PrepareContext(ctx, text)
		if err != nil {
			return nil, err
		}
		s.usage.mu.Lock()
		if st, known = s.usage.queries[text]; known {
			defer made.Close()
		} else {
			st = made
			s.usage.queries[text] = st
		}
		s.usage.mu.Unlock()
	}
	return st.QueryContext(ctx, args...)
}

func isElsewhere(part sql.RawBytes) bool { return bytes.Equal(part, elsewhere) }

// packSQL selects the parts of the packs of a cell, the counts last, and rows without parts for
// what is not packed. It is one statement, because a pack may be made between two.
func packSQL(q store.UsageQuery, c cell, projects, parts []string, digests bool, found *usage.Groups) (text string, args []any) {
	arg := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("?%d", len(args))
	}
	at := "grain = " + arg(c.grain) + " AND at = " + arg(c.at)
	columns, nulls := "project", "project"
	for _, part := range parts[:len(parts)-1] {
		columns += ", (SELECT data FROM usage_packs WHERE " + at + " AND project = c.project AND chunk = c.chunk AND part = " + arg(part) + ")"
		nulls += ", NULL"
	}
	of := make([]string, len(projects))
	for i, p := range projects {
		of[i] = arg(p)
	}
	at += " AND project IN (" + strings.Join(of, ", ") + ")"
	which := at + " AND part = '" + usage.PartCounts + "' AND chunk >= 0"
	if digests {
		which = strings.Replace(which, ">= 0", "= "+fmt.Sprint(digestChunk), 1)
	} else {
		if q.In.Sandbox != "" {
			word := arg(q.In.Sandbox)
			which += " AND (last = '' OR first <= " + word + " AND last >= " + word + ")"
		}
		if q.Sandbox && !q.Day && !q.Hour && !q.Project && c.grain != grainHour {
			if found.After != nil {
				which += " AND last >= " + arg(found.After.Sandbox)
			}
			if found.Last != nil {
				which += " AND first <= " + arg(found.Last.Sandbox)
			}
		}
	}
	return "SELECT " + nulls + ", NULL FROM usage_unpacked WHERE " + at +
		" UNION ALL SELECT " + columns + ", data FROM usage_packs c WHERE " + which, args
}

// damagedPack is the error for a damaged pack.
type damagedPack packAt

func (d damagedPack) Error() string {
	return fmt.Sprintf("the pack of usage of %s, %s %d, is damaged", d.project, d.grain, d.at)
}
