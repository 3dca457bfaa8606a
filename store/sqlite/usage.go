package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/usage"
)

var _ store.Usage = (*Store)(nil)

// usageStatements are prepared separately, since there are many.
type usageStatements struct {
	keyed, totals [len(usage.Grains)]*sql.Stmt
	tree          *sql.Stmt

	key, addKey, addProject            *sql.Stmt
	putMark, dropMark, state, putState *sql.Stmt
}

func (u *usageStatements) prepare(ctx context.Context, db *sql.DB) error {
	type statement struct {
		into **sql.Stmt
		text string
	}
	list := []statement{
		{&u.tree, addTo("usage_trees", "root")},

		{&u.key, `SELECT id FROM usage_keys WHERE sandbox = ? AND project = ? AND template = ? AND labels = ?`},
		{&u.addKey, `INSERT INTO usage_keys (sandbox, project, template, labels) VALUES (?, ?, ?, ?)`},
		{&u.addProject, `INSERT INTO usage_projects (name) VALUES (?) ON CONFLICT DO NOTHING`},

		{&u.putMark, `REPLACE INTO usage_marks (sandbox, started, wall, boot, uptime, cpu, egress, ingress) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`},
		{&u.dropMark, `DELETE FROM usage_marks WHERE sandbox = ?`},
		{&u.state, `SELECT value FROM usage_state WHERE name = ?`},
		{&u.putState, `REPLACE INTO usage_state (name, value) VALUES (?, ?)`},
	}
	for i, grain := range usage.Grains {
		list = append(list, statement{&u.keyed[i], addTo("usage_"+grain+"s", "project", grain, "key")},
			statement{&u.totals[i], addTo("usage_"+grain+"_totals", "project", grain, "template")})
	}
	for _, p := range list {
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
	for m := range strings.SplitSeq(usage.Meters, ", ") {
		sums = append(sums, m+" = "+m+" + excluded."+m)
	}
	columns := strings.Join(key, ", ")
	return "INSERT INTO " + table + " (" + columns + ", " + usage.Meters + ") VALUES (?" + strings.Repeat(", ?", len(key)+len(store.Counts{})-1) +
		") ON CONFLICT (" + columns + ") DO UPDATE SET " + strings.Join(sums, ", ")
}

// The names of what usage_state holds.
const (
	stateBatch   = "batch"
	stateStorage = "storage"
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
	w := usageWriter{ctx: ctx, tx: tx, u: &s.usage}
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
	}
	if w.err != nil {
		return fmt.Errorf("store: write usage: %w", w.err)
	}
	return nil
}

// usageWriter keeps its first error and does nothing after it.
type usageWriter struct {
	ctx context.Context
	tx  *sql.Tx
	u   *usageStatements
	err error
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

// rows sums up what goes to the same row before writing: there are few sums.
func (w *usageWriter) rows(rows []store.UsageRow) {
	type keyAt struct {
		project string
		key, at int64
	}
	type totalAt struct {
		project, template string
		at                int64
	}
	var keyed [len(usage.Grains)]map[keyAt]store.Counts
	var totals [len(usage.Grains)]map[totalAt]store.Counts
	for i := range usage.Grains {
		keyed[i], totals[i] = map[keyAt]store.Counts{}, map[totalAt]store.Counts{}
	}
	keys, trees := map[store.UsageKey]int64{}, map[string]store.Counts{}
	for _, r := range rows {
		id, known := keys[r.UsageKey]
		if !known {
			id = w.key(r.UsageKey)
			keys[r.UsageKey] = id
		}
		for i, at := range usage.Units(r.Hour) {
			sum(keyed[i], keyAt{r.Project, id, at}, r.Counts)
			sum(totals[i], totalAt{r.Project, r.Template, at}, r.Counts)
		}
		if r.Root != "" {
			sum(trees, r.Root, r.Counts)
		}
	}
	for i := range usage.Grains {
		for k, c := range keyed[i] {
			w.add(w.u.keyed[i], c, k.project, k.at, k.key)
		}
		for k, c := range totals[i] {
			w.add(w.u.totals[i], c, k.project, k.at, k.template)
		}
	}
	for root, c := range trees {
		w.add(w.u.tree, c, root)
	}
}

func sum[K comparable](m map[K]store.Counts, k K, c store.Counts) {
	was := m[k]
	was.Add(c)
	m[k] = was
}

// key returns the id of a key's row, creating it if needed.
func (w *usageWriter) key(k store.UsageKey) (id int64) {
	if w.err != nil {
		return 0
	}
	err := w.tx.StmtContext(w.ctx, w.u.key).QueryRowContext(w.ctx, k.Sandbox, k.Project, k.Template, k.Labels).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		id = w.exec(w.u.addKey, k.Sandbox, k.Project, k.Template, k.Labels)
		w.exec(w.u.addProject, k.Project)
		return id
	}
	w.err = err
	return id
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
	err = s.read.QueryRowContext(ctx, "SELECT "+usage.Meters+" FROM usage_trees WHERE root = ?", root).Scan(usage.Into(&c)...)
	if errors.Is(err, sql.ErrNoRows) {
		return c, nil
	}
	if err != nil {
		err = fmt.Errorf("store: read the usage of %s: %w", root, err)
	}
	return c, err
}

// QueryUsage implements store.Usage.
func (s *Store) QueryUsage(ctx context.Context, q store.UsageQuery) ([]store.UsageGroup, error) {
	db := usage.Database{Embedded: true, Rows: func(st usage.Statement, add func(usage.Row) error) error {
		rows, err := s.read.QueryContext(ctx, st.Text, st.Args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		var r usage.Row
		into := st.Into(&r)
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				return err
			}
			if err := add(r); err != nil {
				return err
			}
		}
		return rows.Err()
	}}
	list, err := db.Query(q)
	if err != nil {
		return nil, fmt.Errorf("store: query usage: %w", err)
	}
	return list, nil
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
