package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/usage"
)

// QueryUsage implements store.Usage. The database sums up. Only labels are grouped here: their
// JSON may contain what jsonb would refuse.
func (s *Store) QueryUsage(ctx context.Context, q store.UsageQuery) ([]store.UsageGroup, error) {
	text, args := usageSQL(q)
	type sums struct {
		group  store.UsageGroup
		labels string
	}
	rows, err := list(ctx, s, "query usage", text, args, func(row pgx.CollectableRow) (v sums, err error) {
		g := &v.group
		return v, row.Scan(append([]any{&g.At, &g.Project, &g.Sandbox, &g.Template, &v.labels}, into(&g.Counts)...)...)
	})
	if err != nil {
		return nil, err
	}
	found := usage.NewGroups(q)
	values := map[string][]string{}
	for _, r := range rows {
		if len(q.Labels) > 0 {
			of, known := values[r.labels]
			if !known {
				if of, err = labelsOf(r.labels, q.Labels); err != nil {
					return nil, fmt.Errorf("store: query usage: %w", err)
				}
				values[r.labels] = of
			}
			r.group.Labels = of
		}
		found.Add(r.group, r.group.Counts)
	}
	return found.Page(), nil
}

// labelsOf returns the values of the named labels.
func labelsOf(text string, names []string) ([]string, error) {
	var all map[string]string
	if text != "" {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return nil, err
		}
	}
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = all[n]
	}
	return out, nil
}

// usageSQL returns the SQL that sums up a query's groups, in the order of the result.
func usageSQL(q store.UsageQuery) (text string, args []any) {
	of := selection{}
	of.add("h.hour >= ? AND h.hour < ?", q.From, q.To)
	for _, w := range []struct{ column, is string }{{"k.project", q.In.Project}, {"k.sandbox", q.In.Sandbox}, {"k.template", q.In.Template}} {
		if w.is != "" {
			of.add(w.column+" = ?", w.is)
		}
	}
	at := "0::bigint"
	switch {
	case q.Hour:
		at = "h.hour"
	case q.Day:
		at = "h.hour / 24"
	}
	var columns, by, keys []string
	var after []any
	paged := q.After != nil
	if !paged {
		q.After = &store.UsageGroup{}
	}
	for n, c := range []struct {
		by    bool
		what  string
		after any // nil if the rows are ordered differently from the groups
	}{
		{q.Hour || q.Day, at, q.After.At}, {q.Project, "k.project", q.After.Project}, {q.Sandbox, "k.sandbox", q.After.Sandbox},
		{q.Template, "k.template", q.After.Template}, {len(q.Labels) > 0, "k.labels", nil},
	} {
		switch {
		case c.by:
			columns, by = append(columns, c.what), append(by, strconv.Itoa(n+1))
			if c.after != nil {
				keys, after = append(keys, c.what), append(after, c.after)
			}
		case n == 0:
			columns = append(columns, "0::bigint")
		default:
			columns = append(columns, "''")
		}
	}
	if paged && len(keys) > 0 {
		of.add("("+strings.Join(keys, ", ")+") >= (?"+strings.Repeat(", ?", len(keys)-1)+")", after...)
	}
	total := ""
	for m := range strings.SplitSeq(meters, ", ") {
		columns = append(columns, "sum(h."+m+")::bigint")
		total += " + sum(h." + m + ")"
	}
	text = "SELECT " + strings.Join(columns, ", ") + " FROM usage_hours h JOIN usage_keys k ON k.id = h.key WHERE " + strings.Join(of.where, " AND ")
	if len(by) > 0 {
		text += " GROUP BY " + strings.Join(by, ", ")
	}
	text += " HAVING" + total[2:] + " > 0"
	if len(by) > 0 {
		text += " ORDER BY " + strings.Join(by, ", ")
	}
	if q.Limit > 0 && len(q.Labels) == 0 {
		text += " LIMIT " + strconv.Itoa(q.Limit+1) // plus the last of the previous page
	}
	return text, of.args
}
