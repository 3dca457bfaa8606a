package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/store"
)

var _ store.Usage = (*Store)(nil)

const (
	// hoursPerDay is exact: times are in UTC without leap seconds.
	hoursPerDay = 24
	// maxKeys limits the cached keys. Beyond it the cache is cleared.
	maxKeys = 10000

	meters = "vcpu, cpu, memory, egress, ingress, snapshots, templates"
)

// usageStatements are prepared separately, since there are many.
type usageStatements struct {
	hour, day, hourTotal, dayTotal, monthTotal, tree *sql.Stmt

	key, addKey, addProject            *sql.Stmt
	unpack, dropPack                   *sql.Stmt
	putMark, dropMark, state, putState *sql.Stmt

	mu   sync.Mutex
	keys map[store.UsageKey]int64
	// queries are cached statements of the reading connections, by text.
	queries map[string]*sql.Stmt
}

func (u *usageStatements) prepare(ctx context.Context, db *sql.DB) error {
	u.keys = map[store.UsageKey]int64{}
	u.queries = map[string]*sql.Stmt{}
	for _, p := range []struct {
		into **sql.Stmt
		text string
	}{
		{&u.hour, addTo("usage_hours", "project", "hour", "key")},
		{&u.day, addTo("usage_days", "project", "day", "key")},
		{&u.hourTotal, addTo("usage_hour_totals", "project", "hour", "template")},
		{&u.dayTotal, addTo("usage_day_totals", "project", "day", "template")},
		{&u.monthTotal, addTo("usage_month_totals", "project", "month", "template")},
		{&u.tree, addTo("usage_trees", "root")},

		{&u.key, `SELECT id FROM usage_keys WHERE sandbox = ? AND project = ? AND template = ? AND labels = ?`},
		{&u.addKey, `INSERT INTO usage_keys (sandbox, project, template, labels) VALUES (?, ?, ?, ?)`},
		{&u.addProject, `INSERT INTO usage_projects (name) VALUES (?) ON CONFLICT DO NOTHING`},

		{&u.unpack, `INSERT INTO usage_unpacked (grain, at, project, version) VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE SET version = version + 1`},
		{&u.dropPack, `DELETE FROM usage_packs WHERE grain = ? AND at = ? AND project = ?`},

		{&u.putMark, `REPLACE INTO usage_marks (sandbox, started, wall, boot, uptime, cpu, egress, ingress) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`},
		{&u.dropMark, `DELETE FROM usage_marks WHERE sandbox = ?`},
		{&u.state, `SELECT value FROM usage_state WHERE name = ?`},
		{&u.putState, `REPLACE INTO usage_state (name, value) VALUES (?, ?)`},
	} {
		var err error
		if *p.into, err = db.PrepareContext(ctx, p.text); err != nil {
			return fmt.Errorf("store: prepare %q: %w", p.text, err)
		}
	}
	return nil
}

// addTo is the statement that adds counts to the row of a key.
func addTo(table string, key ...string) string {
	var sums []string
	for m := range strings.SplitSeq(meters, ", ") {
		sums = append(sums, m+" = "+m+" + excluded."+m)
	}
	columns := strings.Join(key, ", ")
	return "INSERT INTO " + table + " (" + columns + ", " + meters + ") VALUES (?" + strings.Repeat(", ?", len(key)+len(store.Counts{})-1) +
		") ON CONFLICT (" + columns + ") DO UPDATE SET " + strings.Join(sums, ", ")
}

// The names of what usage_state holds.
const (
	stateBatch   = "batch"
	stateStorage = "storage"
	statePacked  = "packed" // the hour up to which packs exist
)

// WriteUsage implements store.Usage.
func (s *Store) WriteUsage(ctx context.Context, b store.UsageBatch) error {
	s.write.Lock()
	defer s.write.Unlock()
	tx, err := s.fast.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("store: write usage: %w", err)
	}
	defer tx.Rollback()
	w := usageWriter{ctx: ctx, tx: tx, u: &s.usage, learned: map[store.UsageKey]int64{}}
	if last, err := w.state(stateBatch); err != nil || (last == b.ID && b.ID != "") {
		return err
	}
	w.rows(b.Rows)
	for _, m := range b.Marks {
		w.exec(s.usage.putMark, m.Sandbox, m.Started, nanos(m.Wall), m.Boot, int64(m.Uptime), m.CPU, m.Egress, m.Ingress)
	}
	for _, id := range b.Gone {
		w.exec(s.usage.dropMark, id)
	}
	if b.Storage != nil {
		w.putJSON(stateStorage, b.Storage)
	}
	w.exec(s.usage.putState, stateBatch, b.ID)
	if w.err == nil {
		w.err = failpoint.Hit("store.usage")
	}
	if w.err == nil {
		w.err = tx.Commit()
	}
	if w.err == nil {
		w.err = failpoint.Hit("store.usage.written")
		s.usage.learn(w.learned)
	}
	if w.err != nil {
		return fmt.Errorf("store: write usage: %w", w.err)
	}
	return nil
}

// usageWriter keeps its first error and does nothing after it.
type usageWriter struct {
	ctx     context.Context
	tx      *sql.Tx
	u       *usageStatements
	learned map[store.UsageKey]int64
	err     error
}

func (w *usageWriter) exec(st *sql.Stmt, args ...any) (id int64) {
	if w.err != nil {
		return 0
	}
	r, err := w.tx.StmtContext(w.ctx, st).ExecContext(w.ctx, args...)
	if err == nil {
		id, err = r.LastInsertId()
	}
	w.err = err
	return id
}

func (w *usageWriter) add(st *sql.Stmt, c store.Counts, key ...any) {
	for _, n := range c {
		key = append(key, n)
	}
	w.exec(st, key...)
}

func (w *usageWriter) state(name string) (value string, err error) {
	err = w.tx.StmtContext(w.ctx, w.u.state).QueryRowContext(w.ctx, name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, err
}

func (w *usageWriter) putJSON(name string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		w.err = errors.Join(w.err, err)
		return
	}
	w.exec(w.u.putState, name, string(b))
}

type (
	keyAt   struct{ id, at int64 }
	totalAt struct {
		project, template string
		at                int64
	}
	packAt struct {
		grain   string
		at      int64
		project string
	}
)

// everybody is the project for sums over all projects.
const everybody = ""

// rows sums up what goes to the same row before writing: there are few sums.
func (w *usageWriter) rows(rows []store.UsageRow) {
	packed, err := w.packed()
	if err != nil {
		w.err = err
		return
	}
	projects := map[int64]string{}
	hours, days := map[keyAt]store.Counts{}, map[keyAt]store.Counts{}
	hourTotals, dayTotals, monthTotals := map[totalAt]store.Counts{}, map[totalAt]store.Counts{}, map[totalAt]store.Counts{}
	trees := map[string]store.Counts{}
	late := map[packAt]bool{}
	for _, r := range rows {
		key := w.key(r.UsageKey)
		if w.err != nil {
			return
		}
		day := floorDiv(r.Hour, hoursPerDay)
		month := monthOf(day)
		projects[key] = r.Project
		sum(hours, keyAt{key, r.Hour}, r.Counts)
		sum(days, keyAt{key, day}, r.Counts)
		for _, project := range []string{r.Project, everybody} {
			sum(hourTotals, totalAt{project, r.Template, r.Hour}, r.Counts)
			sum(dayTotals, totalAt{project, r.Template, day}, r.Counts)
			sum(monthTotals, totalAt{project, r.Template, month}, r.Counts)
		}
		if r.Root != "" {
			sum(trees, r.Root, r.Counts)
		}
		if r.Hour < packed {
			late[packAt{grainHour, day, r.Project}] = true
			late[packAt{grainDay, day, r.Project}] = day < floorDiv(packed, hoursPerDay)
			late[packAt{grainMonth, month, r.Project}] = month < monthOf(floorDiv(packed, hoursPerDay))
		}
	}
	for k, c := range hours {
		w.add(w.u.hour, c, projects[k.id], k.at, k.id)
	}
	for k, c := range days {
		w.add(w.u.day, c, projects[k.id], k.at, k.id)
	}
	for st, totals := range map[*sql.Stmt]map[totalAt]store.Counts{w.u.hourTotal: hourTotals, w.u.dayTotal: dayTotals, w.u.monthTotal: monthTotals} {
		for k, c := range totals {
			w.add(st, c, k.project, k.at, k.template)
		}
	}
	for root, c := range trees {
		w.add(w.u.tree, c, root)
	}
	for p, made := range late {
		if made {
			w.unpack(p)
		}
	}
}

func sum[K comparable](m map[K]store.Counts, k K, c store.Counts) {
	was := m[k]
	was.Add(c)
	m[k] = was
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// monthOf is the month of a day, counted from year 0.
func monthOf(day int64) int64 {
	t := time.Unix(day*hoursPerDay*3600, 0).UTC()
	return int64(t.Year())*12 + int64(t.Month()) - 1
}

// dayOf is the first day of a month.
func dayOf(month int64) int64 {
	return floorDiv(time.Date(int(month/12), time.Month(month%12+1), 1, 0, 0, 0, 0, time.UTC).Unix(), hoursPerDay*3600)
}

// key returns the id of a key's row, creating it if needed.
func (w *usageWriter) key(k store.UsageKey) int64 {
	k.Root = ""
	if id, ok := w.learned[k]; ok {
		return id
	}
	w.u.mu.Lock()
	id, ok := w.u.keys[k]
	w.u.mu.Unlock()
	if ok || w.err != nil {
		return id
	}
	err := w.tx.StmtContext(w.ctx, w.u.key).QueryRowContext(w.ctx, k.Sandbox, k.Project, k.Template, k.Labels).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		id, err = w.exec(w.u.addKey, k.Sandbox, k.Project, k.Template, k.Labels), nil
		w.exec(w.u.addProject, k.Project)
	}
	if w.err == nil {
		w.err = err
	}
	w.learned[k] = id
	return id
}

// learn caches the keys of a committed transaction.
func (u *usageStatements) learn(keys map[store.UsageKey]int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.keys)+len(keys) > maxKeys {
		clear(u.keys)
	}
	for k, v := range keys {
		u.keys[k] = v
	}
}

// UsageProgress implements store.Usage.
func (s *Store) UsageProgress(ctx context.Context) (p store.UsageProgress, err error) {
	if p.Marks, err = s.usageMarks(ctx); err != nil {
		return p, fmt.Errorf("store: read the progress of usage: %w", err)
	}
	var storage string
	err = s.read.QueryRowContext(ctx, `SELECT value FROM usage_state WHERE name = ?`, stateStorage).Scan(&storage)
	if err == nil {
		err = json.Unmarshal([]byte(storage), &p.Storage)
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return p, fmt.Errorf("store: read the progress of usage: %w", err)
	}
	return p, nil
}

func (s *Store) usageMarks(ctx context.Context) (list []store.UsageMark, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT sandbox, started, wall, boot, uptime, cpu, egress, ingress FROM usage_marks`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var m store.UsageMark
		var wall int64
		if err := rows.Scan(&m.Sandbox, &m.Started, &wall, &m.Boot, &m.Uptime, &m.CPU, &m.Egress, &m.Ingress); err != nil {
			return nil, err
		}
		m.Wall = time.Unix(0, wall).UTC()
		list = append(list, m)
	}
	return list, rows.Err()
}

// TreeUsage implements store.Usage.
func (s *Store) TreeUsage(ctx context.Context, root string) (c store.Counts, err error) {
	err = s.read.QueryRowContext(ctx, "SELECT "+meters+" FROM usage_trees WHERE root = ?", root).Scan(scanCounts(&c)...)
	if errors.Is(err, sql.ErrNoRows) {
		return c, nil
	}
	if err != nil {
		err = fmt.Errorf("store: read the usage of %s: %w", root, err)
	}
	return c, err
}

func scanCounts(c *store.Counts) []any {
	into := make([]any, len(c))
	for i := range c {
		into[i] = &c[i]
	}
	return into
}

// budgetRecord is the part of a budget without columns of its own.
type budgetRecord struct {
	Warned   string `json:"warned,omitempty"`
	Exceeded string `json:"exceeded,omitempty"`
}

// PutBudget implements store.Usage.
func (s *Store) PutBudget(ctx context.Context, b store.Budget) error {
	s.write.Lock()
	defer s.write.Unlock()
	record, err := json.Marshal(budgetRecord{b.Warned, b.Exceeded})
	if err == nil && b.Amount == 0 {
		_, err = s.durable.ExecContext(ctx, `DELETE FROM budgets WHERE kind = ? AND id = ?`, string(b.Kind), b.ID)
	} else if err == nil {
		_, err = s.durable.ExecContext(ctx, `REPLACE INTO budgets (kind, id, project, amount, record) VALUES (?, ?, ?, ?, ?)`,
			string(b.Kind), b.ID, b.Project, b.Amount, string(record))
	}
	return s.fault("put budget", err)
}

// Budgets implements store.Usage.
func (s *Store) Budgets(ctx context.Context) (list []store.Budget, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT kind, id, project, amount, record FROM budgets`)
	if err != nil {
		return nil, fmt.Errorf("store: list budgets: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var b store.Budget
		var record string
		var r budgetRecord
		err := rows.Scan(&b.Kind, &b.ID, &b.Project, &b.Amount, &record)
		if err == nil {
			err = json.Unmarshal([]byte(record), &r)
		}
		if err != nil {
			return nil, fmt.Errorf("store: list budgets: %w", err)
		}
		b.Warned, b.Exceeded = r.Warned, r.Exceeded
		list = append(list, b)
	}
	return list, rows.Err()
}
