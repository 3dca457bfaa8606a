package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// AuditEnds implements store.Store.
func (s *Store) AuditEnds(ctx context.Context) (store.AuditEnds, error) {
	var e store.AuditEnds
	err := s.read.QueryRowContext(ctx, `SELECT after_id, after_hash, last_id, last_hash FROM audit_ends`).
		Scan(&e.AfterID, &e.AfterHash, &e.LastID, &e.LastHash)
	if err != nil {
		return e, fmt.Errorf("store: read the ends of the audit: %w", err)
	}
	return e, nil
}

// AppendAudit implements store.Store.
func (s *Store) AppendAudit(ctx context.Context, lines []store.AuditLine) error {
	return s.inDurable(ctx, "append to the audit", func(tx *sql.Tx) error {
		st, err := tx.PrepareContext(ctx, `INSERT INTO audit (id, time, project, token_id, sandbox_id, action, status, record, hash)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`)
		if err != nil {
			return err
		}
		defer st.Close()
		for _, l := range lines {
			_, err := st.ExecContext(ctx, l.ID, nanos(l.Time), l.ProjectID, l.TokenID, l.SandboxID, l.Action, l.Status, l.Record, l.Hash)
			if err != nil {
				return err
			}
		}
		last := lines[len(lines)-1]
		_, err = tx.ExecContext(ctx, `UPDATE audit_ends SET last_id = ?, last_hash = ?`, last.ID, last.Hash)
		return err
	})
}

// AuditLines implements store.Store.
func (s *Store) AuditLines(ctx context.Context, f bothy.AuditFilter) ([]store.AuditLine, error) {
	var where []string
	var args []any
	want := func(cond string, v any) {
		where, args = append(where, cond), append(args, v)
	}
	for column, v := range map[string]string{
		"project = ?": f.ProjectID, "token_id = ?": f.TokenID, "sandbox_id = ?": f.SandboxID, "action = ?": f.Action,
	} {
		if v != "" {
			want(column, v)
		}
	}
	if !f.Since.IsZero() {
		want("time >= ?", nanos(f.Since))
	}
	if !f.Until.IsZero() {
		want("time < ?", nanos(f.Until))
	}
	if f.Refused {
		where = append(where, "status IN (401, 403, 404)")
	}
	order := "DESC"
	if f.Oldest {
		order = "ASC"
		want("id > ?", f.Cursor)
	} else if f.Cursor > 0 {
		want("id < ?", f.Cursor)
	}
	query := "SELECT id, record, hash FROM audit"
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	rows, err := s.read.QueryContext(ctx, query+" ORDER BY id "+order+" LIMIT ?", append(args, f.Limit)...)
	if err != nil {
		return nil, fmt.Errorf("store: list the audit: %w", err)
	}
	defer rows.Close()
	var out []store.AuditLine
	for rows.Next() {
		var l store.AuditLine
		if err := rows.Scan(&l.ID, &l.Record, &l.Hash); err != nil {
			return nil, fmt.Errorf("store: list the audit: %w", err)
		}
		out = append(out, l)
	}
	return out, rows.Err()
}

// DeleteAuditBefore implements store.Store.
func (s *Store) DeleteAuditBefore(ctx context.Context, t time.Time, most int) (n int, err error) {
	err = s.inDurable(ctx, "forget the old audit", func(tx *sql.Tx) error {
		// Only the beginning of the chain may be deleted: stop at the first line that is
		// recent, even if the clock has jumped.
		var first sql.NullInt64
		if err := tx.QueryRowContext(ctx, `SELECT min(id) FROM audit WHERE time >= ?`, nanos(t)).Scan(&first); err != nil {
			return err
		}
		var id int64
		var hash string
		err := tx.QueryRowContext(ctx, `SELECT id, hash FROM (SELECT id, hash FROM audit WHERE ? IS NULL OR id < ? ORDER BY id LIMIT ?)
			ORDER BY id DESC LIMIT 1`, first, first, most).Scan(&id, &hash)
		if err == sql.ErrNoRows {
			return nil
		}
		if err != nil {
			return err
		}
		r, err := tx.ExecContext(ctx, `DELETE FROM audit WHERE id <= ?`, id)
		if err != nil {
			return err
		}
		deleted, err := r.RowsAffected()
		if err != nil {
			return err
		}
		n = int(deleted)
		_, err = tx.ExecContext(ctx, `UPDATE audit_ends SET after_id = ?, after_hash = ?`, id, hash)
		return err
	})
	return n, err
}

// inDurable applies changes atomically, such that they survive a power cut.
func (s *Store) inDurable(ctx context.Context, op string, do func(*sql.Tx) error) error {
	s.write.Lock()
	defer s.write.Unlock()
	tx, err := s.durable.BeginTx(ctx, nil)
	if err != nil {
		return s.fault(op, err)
	}
	if err = do(tx); err == nil {
		err = tx.Commit()
	} else {
		_ = tx.Rollback()
	}
	return s.fault(op, err)
}
