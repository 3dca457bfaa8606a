package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy/store"
)

// Load calls load with a store whose rows are committed together when it returns, or not at
// all.
func (s *Store) Load(ctx context.Context, load func(store.Rows) error) error {
	return s.fault("load", pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// Reading the source may take longer than the timeout for a server's changes.
		_, err := tx.Exec(ctx, `SELECT server_holds($1), set_config('idle_in_transaction_session_timeout', '0', true)`, s.lease.epoch)
		if err != nil {
			return err
		}
		return load(rowsIn{tx})
	}))
}

var _ store.RowReader = (*Store)(nil)

// ReadRows implements store.RowReader.
func (s *Store) ReadRows(ctx context.Context, t store.Table, each func([]any) error) error {
	return s.fault("read", pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return rowsIn{tx}.ReadRows(ctx, t, each) }))
}

// rowsIn reads and writes rows in a transaction.
type rowsIn struct{ tx pgx.Tx }

// ReadRows implements store.Rows.
func (r rowsIn) ReadRows(ctx context.Context, t store.Table, each func([]any) error) error {
	columns, from := strings.Join(t.Columns, ", "), t.Name
	switch t.Name {
	case "sandboxes":
		columns = strings.Replace(columns, "pooled", "pooled::int", 1)
	case "answers":
		columns = strings.Replace(columns, "dropped", "dropped::int", 1)
	case "places":
		columns = strings.Replace(columns, "used", "used::int", 1)
	case "logins":
		columns = strings.Replace(columns, "code", "code::int", 1)
	case "events_end", "audit_ends":
		from += " WHERE last_id > 0"
	case "usage_hours":
		from += " h JOIN usage_keys k ON k.id = h.key"
	}
	rows, err := r.tx.Query(ctx, "SELECT "+columns+" FROM "+from)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		row, err := rows.Values()
		if err != nil {
			return err
		}
		for i, v := range row {
			switch v := v.(type) {
			case int32:
				row[i] = int64(v)
			case []any: // the pairs of metadata
				if row[i], err = object(v); err != nil {
					return err
				}
			}
		}
		if err := each(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// object converts pairs to a JSON object.
func object(pairs []any) (string, error) {
	m := map[string]string{}
	for _, p := range pairs {
		var pair [2]string
		text, _ := p.(string)
		if err := json.Unmarshal([]byte(text), &pair); err != nil {
			return "", err
		}
		m[pair[0]] = pair[1]
	}
	b, err := json.Marshal(m)
	return string(b), err
}

// WriteRows implements store.Rows.
func (r rowsIn) WriteRows(ctx context.Context, t store.Table, rows [][]any) error {
	b := &pgx.Batch{}
	for _, row := range rows {
		if err := queue(b, t, append([]any(nil), row...)); err != nil {
			return err
		}
	}
	if t.Name == "answers" {
		b.Queue(`SELECT setval(pg_get_serial_sequence('answers', 'id'), (SELECT max(id) FROM answers))`)
	}
	return r.tx.SendBatch(ctx, b).Close()
}

// queue adds the statements that write a row.
func queue(b *pgx.Batch, t store.Table, row []any) error {
	columns := append([]string(nil), t.Columns...)
	switch t.Name {
	case "events_end":
		b.Queue(`UPDATE events_end SET last_id = $1`, row...)
		return nil
	case "audit_ends":
		b.Queue(`UPDATE audit_ends SET after_id = $1, after_hash = $2, last_id = $3, last_hash = $4`, row...)
		return nil
	case "sandboxes":
		for i, c := range columns {
			switch c {
			case "pooled":
				row[i] = row[i] != int64(0)
			case "metadata":
				var m map[string]string
				text, _ := row[i].(string)
				if err := json.Unmarshal([]byte(text), &m); err != nil {
					return fmt.Errorf("metadata %q: %w", text, err)
				}
				row[i] = Pairs(m)
			}
		}
	case "logins":
		for i, c := range columns {
			if c == "code" {
				row[i] = row[i] != int64(0)
			}
		}
	case "answers":
		// Epoch 0 marks reservations as void: their server is gone.
		columns, row = append(columns, "epoch"), append(row, int64(0))
		for i, c := range columns {
			if c == "dropped" {
				row[i] = row[i] != int64(0)
			}
		}
	case "places":
		row[3] = row[3] != int64(0)
	case "usage_hours":
		of := func(i int) string { text, _ := row[i].(string); return text }
		key := store.UsageKey{Project: of(0), Template: of(1), Sandbox: of(2), Labels: of(3)}
		digest := Digest(key)
		b.Queue(`INSERT INTO usage_keys (digest, project, template, sandbox, labels) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
			clean([]any{digest[:], key.Project, key.Template, key.Sandbox, key.Labels})...)
		b.Queue(`INSERT INTO usage_hours (key, hour, `+meters+`) SELECT id, $2, $3, $4, $5, $6, $7, $8, $9 FROM usage_keys WHERE digest = $1`,
			append([]any{digest[:]}, row[4:]...)...)
		return nil
	}
	marks := make([]string, len(columns))
	for i := range marks {
		marks[i] = fmt.Sprint("$", i+1)
	}
	b.Queue("INSERT INTO "+t.Name+" ("+strings.Join(columns, ", ")+") VALUES ("+strings.Join(marks, ", ")+")", clean(row)...)
	return nil
}
