package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy/store"
)

// A query is answered from the smallest tables that know enough: whole months and
// days from those of months and days, and what is left at both ends from those
// of hours.

// keyed reports whether only the records themselves know the answer.
func keyed(q store.UsageQuery) bool { return q.Sandbox || len(q.Labels) > 1 || q.In.Sandbox != "" }

// QueryUsage implements store.Usage.
func (s *Store) QueryUsage(ctx context.Context, q store.UsageQuery) ([]store.UsageGroup, error) {
	found := groups{index: map[groupKey]int{}}
	for _, p := range usageParts(q) {
		projects := []string{q.In.Project}
		if q.In.Project == "" && (q.Project || keyed(q) || p.table == "hour" && len(q.Labels) > 0) {
			var err error
			if projects, err = s.usageProjects(ctx); err != nil {
				return nil, err
			}
		}
		for _, project := range projects {
			if err := s.queryPart(ctx, q, p, project, &found); err != nil {
				return nil, fmt.Errorf("store: query usage: %w", err)
			}
			if q.MaxGroups > 0 && len(found.list) > q.MaxGroups {
				return nil, store.ErrTooManyGroups
			}
		}
	}
	return slices.DeleteFunc(found.list, func(g store.UsageGroup) bool { return g.Counts == store.Counts{} }), nil
}

func (s *Store) usageProjects(ctx context.Context) (list []string, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT name FROM usage_projects`)
	if err != nil {
		return nil, fmt.Errorf("store: query usage: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("store: query usage: %w", err)
		}
		list = append(list, name)
	}
	return list, rows.Err()
}

// usagePart is a stretch of time that one kind of table answers for: "hour",
// "day" or "month", which is also what from and to count. to is not included.
type usagePart struct {
	table    string
	from, to int64
}

func usageParts(q store.UsageQuery) []usagePart {
	firstDay, lastDay := floorDiv(q.From+hoursPerDay-1, hoursPerDay), floorDiv(q.To, hoursPerDay)
	if q.Hour || firstDay >= lastDay {
		return []usagePart{{"hour", q.From, q.To}}
	}
	ends := []usagePart{{"hour", q.From, firstDay * hoursPerDay}, {"hour", lastDay * hoursPerDay, q.To}}
	first, last := monthOf(firstDay-1)+1, monthOf(lastDay)
	if q.Day || keyed(q) || first >= last {
		return append(ends, usagePart{"day", firstDay, lastDay})
	}
	return append(ends, usagePart{"day", firstDay, dayOf(first)}, usagePart{"month", first, last}, usagePart{"day", dayOf(last), lastDay})
}

// queryPart adds up a stretch of one project's time.
func (s *Store) queryPart(ctx context.Context, q store.UsageQuery, p usagePart, project string, into *groups) error {
	if p.from >= p.to {
		return nil
	}
	if p.table != "hour" && len(q.Labels) == 1 && !keyed(q) {
		return s.queryLabels(ctx, q, p, project, into)
	}
	text, args := usageSQL(q, p, project)
	return s.queryRows(ctx, q, project, text, args, into.add)
}

// queryLabels adds up whole days or months by one label. Those tables leave out what
// has no such label: it is the rest of the total.
func (s *Store) queryLabels(ctx context.Context, q store.UsageQuery, p usagePart, project string, into *groups) error {
	all := q
	all.Labels = nil
	text, args := usageSQL(all, p, project)
	err := s.queryRows(ctx, all, project, text, args, func(g store.UsageGroup, c store.Counts) {
		g.Labels = []string{""}
		into.add(g, c)
	})
	if err != nil {
		return err
	}
	text, args = labelSQL(q, p, project)
	return s.queryRows(ctx, q, project, text, args, func(g store.UsageGroup, c store.Counts) {
		into.add(g, c)
		for i := range c {
			c[i] = -c[i]
		}
		g.Labels = []string{""}
		into.add(g, c)
	})
}

func (s *Store) queryRows(ctx context.Context, q store.UsageQuery, project, text string, args []any, found func(store.UsageGroup, store.Counts)) error {
	rows, err := s.read.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var row store.UsageGroup
	row.Labels = make([]string, len(q.Labels))
	if q.Project {
		row.Project = project
	}
	var columns []any
	if q.Hour || q.Day {
		columns = append(columns, &row.At)
	}
	if q.Template {
		columns = append(columns, &row.Template)
	}
	if q.Sandbox {
		columns = append(columns, &row.Sandbox)
	}
	for i := range row.Labels {
		columns = append(columns, &row.Labels[i])
	}
	var c store.Counts
	columns = append(columns, scanCounts(&c)...)
	n := 0
	for rows.Next() {
		if err := rows.Scan(columns...); err != nil {
			return err
		}
		g := row
		g.Labels = slices.Clone(row.Labels)
		if n++; q.MaxGroups > 0 && n > q.MaxGroups {
			return store.ErrTooManyGroups
		}
		found(g, c)
	}
	return rows.Err()
}

func usageSQL(q store.UsageQuery, p usagePart, project string) (text string, args []any) {
	at := p.table
	if q.Day && p.table == "hour" && !q.Hour {
		at = "hour / 24"
	}
	var by []string
	if q.Hour || q.Day {
		by = append(by, at+" AS at")
	}
	within := "project = ? AND " + p.table + " >= ? AND " + p.table + " < ?"
	args = []any{project, p.from, p.to}
	if keyed(q) || len(q.Labels) > 0 {
		return keyedSQL(q, p, by, within, args)
	}
	if q.Template {
		by = append(by, "template")
	}
	if q.In.Template != "" {
		within += " AND template = ?"
		args = append(args, q.In.Template)
	}
	return selectSums(by, "usage_"+p.table+"_totals t", within), args
}

// keyedSQL is the sum of the records themselves. Where there are many of one key,
// they are added up before anything is looked up for it.
func keyedSQL(q store.UsageQuery, p usagePart, by []string, within string, args []any) (string, []any) {
	if q.In.Sandbox != "" {
		within += " AND key IN (SELECT id FROM usage_keys WHERE sandbox = ?)"
		args = append(args, q.In.Sandbox)
	}
	inner := append(slices.Clone(by), "key")
	together := ""
	columns := slices.Clone(inner)
	for m := range strings.SplitSeq(meters, ", ") {
		if p.table == "hour" && !q.Hour {
			together = " GROUP BY " + groupOf(inner)
			m = "sum(" + m + ") AS " + m
		}
		columns = append(columns, m)
	}
	from := "(SELECT " + strings.Join(columns, ", ") + " FROM usage_" + p.table + "s WHERE " + within + together + ") t"
	if len(by) > 0 {
		by = []string{"t.at"}
	}
	if q.Template || q.Sandbox || q.In.Template != "" {
		from += " JOIN usage_keys k ON k.id = t.key"
	}
	if q.Template {
		by = append(by, "k.template")
	}
	if q.Sandbox {
		by = append(by, "k.sandbox")
	}
	for i, label := range q.Labels {
		from += fmt.Sprintf(" LEFT JOIN usage_key_labels l%d ON l%d.key = t.key AND l%d.label = ?", i, i, i)
		by = append(by, fmt.Sprintf("coalesce(l%d.value, '')", i))
		args = append(args, label)
	}
	where := "1"
	if q.In.Template != "" {
		where = "k.template = ?"
		args = append(args, q.In.Template)
	}
	return selectSums(by, from, where), args
}

// groupOf is what to group by, without the names that it is given.
func groupOf(by []string) string {
	list := make([]string, len(by))
	for i, b := range by {
		list[i], _, _ = strings.Cut(b, " AS ")
	}
	return strings.Join(list, ", ")
}

// labelSQL is the sum of whole days or months by a label.
func labelSQL(q store.UsageQuery, p usagePart, project string) (text string, args []any) {
	var by []string
	if q.Day {
		by = append(by, "day")
	}
	if q.Template {
		by = append(by, "template")
	}
	where := "project = ? AND label = ? AND " + p.table + " >= ? AND " + p.table + " < ?"
	args = []any{project, q.Labels[0], p.from, p.to}
	if q.In.Template != "" {
		where += " AND template = ?"
		args = append(args, q.In.Template)
	}
	return selectSums(append(by, "value"), "usage_"+p.table+"_labels t", where), args
}

func selectSums(by []string, from, where string) string {
	columns := slices.Clone(by)
	for m := range strings.SplitSeq(meters, ", ") {
		columns = append(columns, "sum(t."+m+")")
	}
	text := "SELECT " + strings.Join(columns, ", ") + " FROM " + from + " WHERE " + where
	if len(by) == 0 {
		return text + " HAVING count(*) > 0"
	}
	return text + " GROUP BY " + groupOf(by)
}

// groups puts together what the parts of a query found.
type groups struct {
	index map[groupKey]int
	list  []store.UsageGroup
}

type groupKey struct {
	at                                 int64
	project, template, sandbox, labels string
}

func (g *groups) add(of store.UsageGroup, c store.Counts) {
	key := groupKey{of.At, of.Project, of.Template, of.Sandbox, strings.Join(of.Labels, "\x00")}
	i, ok := g.index[key]
	if !ok {
		i = len(g.list)
		g.index[key] = i
		g.list = append(g.list, of)
	}
	g.list[i].Counts.Add(c)
}
