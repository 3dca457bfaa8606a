package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/usage"
)

var _ store.Usage = (*Store)(nil)

const meters = usage.Meters

// The names of rows in usage_state.
const (
	stateBatch   = "batch"
	stateStorage = "storage"
)

// added is the SQL that adds counts to a row.
func added(table string) string {
	var sums []string
	for m := range strings.SplitSeq(meters, ", ") {
		sums = append(sums, m+" = "+table+"."+m+" + excluded."+m)
	}
	return strings.Join(sums, ", ")
}

// arrays is the SQL for the array parameters of all meters, starting at the given number.
func arrays(first int) string {
	var list []string
	for i := range len(store.Counts{}) {
		list = append(list, fmt.Sprintf("$%d::bigint[]", first+i))
	}
	return strings.Join(list, ", ")
}

var (
	addKeys = `INSERT INTO usage_keys (digest, project, template, sandbox, labels)
		SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::text[]) ON CONFLICT (digest) DO NOTHING`
	addHours = `INSERT INTO usage_hours (key, hour, ` + meters + `)
		SELECT k.id, u.hour, ` + columnsOf("u") + ` FROM unnest($1::bytea[], $2::bigint[], ` + arrays(3) + `) AS u(digest, hour, ` + meters + `)
		JOIN usage_keys k ON k.digest = u.digest ORDER BY k.id, u.hour ON CONFLICT (key, hour) DO UPDATE SET ` + added("usage_hours")
	addTrees = `INSERT INTO usage_trees (root, ` + meters + `) SELECT * FROM unnest($1::text[], ` + arrays(2) + `)
		ON CONFLICT (root) DO UPDATE SET ` + added("usage_trees")
	putMarks = `INSERT INTO usage_marks (sandbox, started, wall, boot, uptime, cpu, egress, ingress, host)
		SELECT m.*, $9 FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
			AS m(sandbox, started, wall, boot, uptime, cpu, egress, ingress)
		ON CONFLICT (sandbox) DO UPDATE SET host = excluded.host, started = excluded.started, wall = excluded.wall, boot = excluded.boot,
		uptime = excluded.uptime, cpu = excluded.cpu, egress = excluded.egress, ingress = excluded.ingress`
	putState = `INSERT INTO usage_state (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`
)

func columnsOf(table string) string {
	return table + "." + strings.ReplaceAll(meters, ", ", ", "+table+".")
}

// columns are counts by column.
type columns [len(store.Counts{})][]int64

func (c *columns) add(n store.Counts) {
	for i := range n {
		c[i] = append(c[i], n[i])
	}
}

func (c *columns) args() (list []any) {
	for _, column := range c {
		list = append(list, column)
	}
	return list
}

// WriteUsage implements store.Usage.
func (s *Store) WriteUsage(ctx context.Context, b store.UsageBatch) error {
	steps, err := s.usageSteps(b)
	if err != nil {
		return fmt.Errorf("store: write usage: %w", err)
	}
	err = s.transaction(ctx, "write usage", once, func(ctx context.Context, tx pgx.Tx) error {
		var last string
		err := tx.QueryRow(ctx, `SELECT value FROM usage_state WHERE name = $1 FOR UPDATE`, s.batchName()).Scan(&last)
		if err == nil && last == b.ID && b.ID != "" {
			return nil
		}
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		batch := &pgx.Batch{}
		for _, st := range steps {
			batch.Queue(st.text, clean(st.args)...)
		}
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		return failpoint.Hit("store.usage")
	})
	if err == nil {
		err = failpoint.Hit("store.usage.written")
	}
	return err
}

// usageSteps returns the statements for a batch. Counts for the same row are summed first,
// since one statement cannot update a row twice.
func (s *Store) usageSteps(b store.UsageBatch) (steps []statement, err error) {
	type hourOf struct {
		digest [sha256.Size]byte
		hour   int64
	}
	keys, hours, trees := map[[sha256.Size]byte]store.UsageKey{}, map[hourOf]store.Counts{}, map[string]store.Counts{}
	for _, r := range b.Rows {
		d := Digest(r.UsageKey)
		keys[d] = r.UsageKey
		sum(hours, hourOf{d, r.Hour}, r.Counts)
		if r.Root != "" {
			sum(trees, r.Root, r.Counts)
		}
	}
	if len(keys) > 0 {
		var digests [][]byte
		var projects, templates, sandboxes, labels []string
		for d, k := range keys {
			digests, projects, templates = append(digests, d[:]), append(projects, k.Project), append(templates, k.Template)
			sandboxes, labels = append(sandboxes, k.Sandbox), append(labels, k.Labels)
		}
		steps = append(steps, do(addKeys, digests, projects, templates, sandboxes, labels))
		var of [][]byte
		var at []int64
		var counts columns
		for h, c := range hours {
			of, at = append(of, h.digest[:]), append(at, h.hour)
			counts.add(c)
		}
		steps = append(steps, do(addHours, append([]any{of, at}, counts.args()...)...))
	}
	if len(trees) > 0 {
		var roots []string
		var counts columns
		for root, c := range trees {
			roots = append(roots, root)
			counts.add(c)
		}
		steps = append(steps, do(addTrees, append([]any{roots}, counts.args()...)...))
	}
	if len(b.Marks) > 0 {
		last := map[string]store.UsageMark{}
		for _, m := range b.Marks {
			last[m.Sandbox] = m
		}
		var sandboxes, boots []string
		var started, walls, uptimes, cpus, egress, ingress []int64
		for _, m := range last {
			sandboxes, boots, started = append(sandboxes, m.Sandbox), append(boots, m.Boot), append(started, m.Started)
			walls, uptimes = append(walls, nanos(m.Wall)), append(uptimes, int64(m.Uptime))
			cpus, egress, ingress = append(cpus, m.CPU), append(egress, m.Egress), append(ingress, m.Ingress)
		}
		steps = append(steps, do(putMarks, sandboxes, started, walls, boots, uptimes, cpus, egress, ingress, s.member.Name))
	}
	if len(b.Gone) > 0 {
		steps = append(steps, do(`DELETE FROM usage_marks WHERE sandbox = ANY($1::text[]) AND host = $2`, append([]string(nil), b.Gone...), s.member.Name))
	}
	if b.Storage != nil {
		text, err := json.Marshal(b.Storage)
		if err != nil {
			return nil, err
		}
		steps = append(steps, do(putState, stateStorage, string(text)))
	}
	return append(steps, do(putState, s.batchName(), b.ID)), nil
}

// batchName is the name under which this server's last batch is stored.
func (s *Store) batchName() string {
	if s.shared() {
		return stateBatch + " of " + s.member.Name
	}
	return stateBatch
}

// Digest is the index key of a row in usage_keys, whose text may be longer than an index
// allows.
func Digest(k store.UsageKey) [sha256.Size]byte {
	var b []byte
	for _, w := range []string{k.Project, k.Template, k.Sandbox, k.Labels} {
		b = binary.AppendUvarint(b, uint64(len(w)))
		b = append(b, w...)
	}
	return sha256.Sum256(b)
}

func sum[K comparable](m map[K]store.Counts, k K, c store.Counts) {
	was := m[k]
	was.Add(c)
	m[k] = was
}

// UsageProgress implements store.Usage.
func (s *Store) UsageProgress(ctx context.Context) (p store.UsageProgress, err error) {
	p.Marks, err = list(ctx, s, "read the progress of usage", `SELECT sandbox, started, wall, boot, uptime, cpu, egress, ingress FROM usage_marks WHERE host = $1`, []any{s.member.Name},
		func(row pgx.CollectableRow) (m store.UsageMark, err error) {
			var wall, uptime int64
			err = row.Scan(&m.Sandbox, &m.Started, &wall, &m.Boot, &uptime, &m.CPU, &m.Egress, &m.Ingress)
			m.Wall, m.Uptime = time.Unix(0, wall).UTC(), time.Duration(uptime)
			return m, err
		})
	if err != nil {
		return p, err
	}
	text, found, err := first(ctx, s, "read the progress of usage", `SELECT value FROM usage_state WHERE name = $1`, []any{stateStorage}, word)
	if err == nil && found {
		err = json.Unmarshal([]byte(text), &p.Storage)
	}
	return p, err
}

// QueryUsage implements store.Usage.
func (s *Store) QueryUsage(ctx context.Context, q store.UsageQuery) ([]store.UsageGroup, error) {
	db := usage.Database{Rows: func(st usage.Statement, add func(usage.Row) error) error {
		var of selection
		of.add(st.Text, st.Args...)
		rows, err := list(ctx, s, "query usage", of.where[0], of.args, func(row pgx.CollectableRow) (r usage.Row, err error) { return r, row.Scan(st.Into(&r)...) })
		for _, r := range rows {
			if err == nil {
				err = add(r)
			}
		}
		return err
	}}
	return db.Query(q)
}

// TreeUsage implements store.Usage.
func (s *Store) TreeUsage(ctx context.Context, root string) (store.Counts, error) {
	c, _, err := first(ctx, s, "read the usage of a tree", "SELECT "+meters+" FROM usage_trees WHERE root = $1", []any{root},
		func(row pgx.CollectableRow) (c store.Counts, err error) { return c, row.Scan(usage.Into(&c)...) })
	return c, err
}

// budgetRecord is the part of a budget that has no columns.
type budgetRecord struct {
	Warned   string `json:"warned,omitempty"`
	Exceeded string `json:"exceeded,omitempty"`
}

// PutBudget implements store.Usage.
func (s *Store) PutBudget(ctx context.Context, b store.Budget) error {
	text, err := json.Marshal(budgetRecord{b.Warned, b.Exceeded})
	if err != nil {
		return fmt.Errorf("store: put budget: %w", err)
	}
	st := do(`INSERT INTO budgets (kind, id, project, amount, record) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (kind, id) DO UPDATE SET project = excluded.project, amount = excluded.amount, record = excluded.record`,
		string(b.Kind), b.ID, b.Project, b.Amount, string(text))
	if b.Amount == 0 {
		st = do(`DELETE FROM budgets WHERE kind = $1 AND id = $2`, string(b.Kind), b.ID)
	}
	_, err = s.change(ctx, "put budget", whole, st)
	return err
}

// TreeBudgets implements store.Hosts.
func (s *Store) TreeBudgets(ctx context.Context, roots []string) (map[string]float64, error) {
	type row struct {
		Root   string
		Amount float64
	}
	rows, err := list(ctx, s, "read budgets", `SELECT id, amount FROM budgets WHERE kind = $1 AND id = ANY($2::text[])`,
		[]any{string(store.BudgetTree), roots}, pgx.RowToStructByPos[row])
	amounts := map[string]float64{}
	for _, r := range rows {
		amounts[r.Root] = r.Amount
	}
	return amounts, err
}

// Budgets implements store.Usage.
func (s *Store) Budgets(ctx context.Context) ([]store.Budget, error) {
	return list(ctx, s, "list budgets", `SELECT kind, id, project, amount, record FROM budgets`, nil,
		func(row pgx.CollectableRow) (b store.Budget, err error) {
			var text, kind string
			var r budgetRecord
			if err = row.Scan(&kind, &b.ID, &b.Project, &b.Amount, &text); err == nil {
				err = json.Unmarshal([]byte(text), &r)
			}
			b.Kind, b.Warned, b.Exceeded = store.BudgetKind(kind), r.Warned, r.Exceeded
			return b, err
		})
}
