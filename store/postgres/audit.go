package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// AuditEnds implements store.Store.
func (s *Store) AuditEnds(ctx context.Context) (e store.AuditEnds, err error) {
	e, _, err = first(ctx, s, "read the ends of the audit", `SELECT after_id, after_hash, last_id, last_hash FROM audit_ends`, nil,
		func(row pgx.CollectableRow) (e store.AuditEnds, err error) {
			return e, row.Scan(&e.AfterID, &e.AfterHash, &e.LastID, &e.LastHash)
		})
	return e, err
}

// AppendAudit implements store.Store. Existing lines are not added again: it is not
// always known whether an earlier attempt succeeded.
func (s *Store) AppendAudit(ctx context.Context, lines []store.AuditLine) error {
	var c struct {
		ids, times, statuses                                  []int64
		projects, tokens, sandboxes, actions, records, hashes []string
	}
	for i, l := range lines {
		if i > 0 && l.ID <= lines[i-1].ID {
			return fmt.Errorf("store: append to the audit: line %d follows %d", l.ID, lines[i-1].ID)
		}
		c.ids, c.times, c.statuses = append(c.ids, l.ID), append(c.times, nanos(l.Time)), append(c.statuses, int64(l.Status))
		c.projects, c.tokens, c.sandboxes = append(c.projects, l.ProjectID), append(c.tokens, l.TokenID), append(c.sandboxes, l.SandboxID)
		c.actions, c.records, c.hashes = append(c.actions, l.Action), append(c.records, l.Record), append(c.hashes, l.Hash)
	}
	last := lines[len(lines)-1]
	if s.shared() {
		return s.appendShared(ctx, lines, c.ids, c.times, c.projects, c.tokens, c.sandboxes, c.actions, c.statuses, c.records, c.hashes)
	}
	_, err := s.change(ctx, "append to the audit", whole,
		do(addAudit,
			c.ids, c.times, c.projects, c.tokens, c.sandboxes, c.actions, c.statuses, c.records, c.hashes),
		do(`UPDATE audit_ends SET last_id = $1, last_hash = $2`, last.ID, last.Hash))
	return err
}

const addAudit = `INSERT INTO audit (id, time, project, token_id, sandbox_id, action, status, record, hash)
	SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[])
		AS l(id, time, project, token_id, sandbox_id, action, status, record, hash)
	WHERE NOT EXISTS (SELECT 1 FROM audit WHERE audit.id = l.id AND audit.hash = l.hash)`

// appendShared is AppendAudit for a shared database. The row of the ends is locked until the
// commit.
func (s *Store) appendShared(ctx context.Context, lines []store.AuditLine, args ...any) error {
	first, last := lines[0], lines[len(lines)-1]
	return s.transaction(ctx, "append to the audit", whole, func(ctx context.Context, tx pgx.Tx) error {
		var end int64
		if err := tx.QueryRow(ctx, `SELECT last_id FROM audit_ends FOR UPDATE`).Scan(&end); err != nil {
			return err
		}
		if end != first.ID-1 {
			// An earlier attempt with an unknown outcome may have succeeded.
			var made bool
			if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM audit WHERE id = $1 AND hash = $2)`, last.ID, last.Hash).Scan(&made); err != nil || made {
				return err
			}
			return store.ErrAuditMoved
		}
		if _, err := tx.Exec(ctx, addAudit, clean(args)...); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE audit_ends SET last_id = $1, last_hash = $2`, last.ID, last.Hash)
		return err
	})
}

// AuditLines implements store.Store.
func (s *Store) AuditLines(ctx context.Context, f bothy.AuditFilter) ([]store.AuditLine, error) {
	var q selection
	for _, w := range []struct{ column, is string }{
		{"project", f.ProjectID}, {"token_id", f.TokenID}, {"sandbox_id", f.SandboxID}, {"action", f.Action},
	} {
		if w.is != "" {
			q.add(w.column+" = ?", w.is)
		}
	}
	if !f.Since.IsZero() {
		q.add("time >= ?", nanos(f.Since))
	}
	if !f.Until.IsZero() {
		q.add("time < ?", nanos(f.Until))
	}
	if f.Refused {
		q.add("status IN (401, 403, 404)")
	}
	order := "DESC"
	if f.Oldest {
		order = "ASC"
		q.add("id > ?", f.Cursor)
	} else if f.Cursor > 0 {
		q.add("id < ?", f.Cursor)
	}
	text := "SELECT id, record, hash FROM audit"
	if len(q.where) > 0 {
		text += " WHERE " + strings.Join(q.where, " AND ")
	}
	return list(ctx, s, "list the audit", text+" ORDER BY id "+order+" LIMIT "+strconv.Itoa(f.Limit), q.args,
		func(row pgx.CollectableRow) (l store.AuditLine, err error) {
			return l, row.Scan(&l.ID, &l.Record, &l.Hash)
		})
}

// DeleteAuditBefore implements store.Store.
func (s *Store) DeleteAuditBefore(ctx context.Context, t time.Time, most int) (n int, err error) {
	err = s.transaction(ctx, "forget the old audit", once, func(ctx context.Context, tx pgx.Tx) error {
		// Only the beginning of the chain may be deleted: stop at the first line that is
		// recent, even if the clock has jumped.
		var first *int64
		if err := tx.QueryRow(ctx, `SELECT min(id) FROM audit WHERE time >= $1`, nanos(t)).Scan(&first); err != nil {
			return err
		}
		var id int64
		var hash string
		err := tx.QueryRow(ctx, `SELECT id, hash FROM (SELECT id, hash FROM audit WHERE $1::bigint IS NULL OR id < $1 ORDER BY id LIMIT $2) oldest
			ORDER BY id DESC LIMIT 1`, first, most).Scan(&id, &hash)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `DELETE FROM audit WHERE id <= $1`, id)
		if err != nil {
			return err
		}
		n = int(tag.RowsAffected())
		_, err = tx.Exec(ctx, `UPDATE audit_ends SET after_id = $1, after_hash = $2`, id, hash)
		return err
	})
	return n, err
}
