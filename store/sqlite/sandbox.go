package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/record"
)

// PutSandbox implements store.Store.
func (s *Store) PutSandbox(ctx context.Context, b *store.Sandbox) error {
	text, err := record.EncodeSandbox(b)
	if err != nil {
		return fmt.Errorf("store: put sandbox %s: %w", b.ID, err)
	}
	metadata := []byte("{}")
	if len(b.Metadata) > 0 {
		if metadata, err = json.Marshal(b.Metadata); err != nil {
			return fmt.Errorf("store: put sandbox %s: %w", b.ID, err)
		}
	}
	args := []any{b.ID, b.ProjectID, b.Name, string(b.State), nanos(b.CreatedAt), endedAt(b), b.Pooled, string(metadata), text, nanosOrNull(b.ResumeAt()), b.Version}
	if b.Version == 0 {
		key := sql.NullString{String: b.Key, Valid: b.Key != "" && !b.State.Ended()}
		if key.Valid {
			if _, err := s.exec(ctx, "release a key", s.stmt.releaseKey, b.ProjectID, b.Key, nanos(b.CreatedAt.Add(-store.KeyLife))); err != nil {
				return err
			}
		}
		args = append(args, key)
	}
	exec := s.execCount
	if b.State.Ended() {
		exec = s.execReserved
	}
	n, err := exec(ctx, "put sandbox", s.putStatement(b), args...)
	if isDuplicate(err) {
		return store.KeyTaken()
	}
	if err != nil {
		return err
	}
	if n == 0 {
		return s.conflict(ctx, b)
	}
	b.Version++
	return nil
}

func (s *Store) putStatement(b *store.Sandbox) *sql.Stmt {
	durably := b.State == bothy.StatePaused || len(b.Checkpoints) > 0 // a checkpoint that no row lists would be deleted
	switch {
	case b.Version == 0 && durably:
		return s.stmt.addSandboxDurably
	case b.Version == 0:
		return s.stmt.addSandbox
	case durably:
		return s.stmt.putSandboxDurably
	}
	return s.stmt.putSandbox
}

// conflict returns the error for a sandbox whose row is not the one that was read. A write that
// failed in any other way was not made, so this is never the caller's own.
func (s *Store) conflict(ctx context.Context, b *store.Sandbox) error {
	c := &store.Conflict{Sandbox: b.ID, Expected: b.Version}
	if err := s.stmt.sandboxVersion.QueryRowContext(context.WithoutCancel(ctx), b.ID).Scan(&c.Found); err != nil {
		return s.fault("put sandbox", err)
	}
	return c.AsError()
}

func endedAt(b *store.Sandbox) any {
	if b.Ended == nil {
		return nil
	}
	return nanos(b.Ended.At)
}

// Sandbox implements store.Store.
func (s *Store) Sandbox(ctx context.Context, id string) (*store.Sandbox, error) {
	var text string
	var version int64
	err := s.stmt.sandbox.QueryRowContext(ctx, id).Scan(&text, &version)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, bothy.NoSandbox(id)
	}
	if err != nil {
		return nil, fmt.Errorf("store: get sandbox %s: %w", id, err)
	}
	return record.DecodeSandbox(text, version)
}

// isDuplicate reports whether a change was refused because another row has the same key.
func isDuplicate(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE
}

// SandboxByKey implements store.Store.
func (s *Store) SandboxByKey(ctx context.Context, projectID, key string, since time.Time) (*store.Sandbox, error) {
	var text string
	var version int64
	err := s.stmt.sandboxByKey.QueryRowContext(ctx, projectID, key, nanos(since)).Scan(&text, &version)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, bothy.Errorf(bothy.CodeSandboxNotFound, "no sandbox was created with the Idempotency-Key %q", key)
	}
	if err != nil {
		return nil, fmt.Errorf("store: get a sandbox by its key: %w", err)
	}
	return record.DecodeSandbox(text, version)
}

// Sandboxes implements store.Store. Ready machines have no owner yet and are not listed.
func (s *Store) Sandboxes(ctx context.Context, projectID string, f bothy.SandboxFilter) (bothy.Page[*store.Sandbox], error) {
	var q selection
	q.add("project = ? AND NOT pooled", projectID)
	in(&q, "state", f.States)
	if f.Name != "" {
		q.add("name = ?", f.Name)
	}
	for k, v := range f.Metadata {
		// json_each instead of a JSON path, since keys may contain dots and quotes.
		q.add("EXISTS (SELECT 1 FROM json_each(metadata) WHERE json_each.key = ? AND json_each.value = ?)", k, v)
	}
	if err := q.after(f.Cursor); err != nil {
		return bothy.Page[*store.Sandbox]{}, err
	}
	limit := record.PageSize(f.Limit)
	text, args := q.query(sandboxColumns, "sandboxes", limit)
	items, err := s.sandboxes(ctx, text, args...)
	if err != nil {
		return bothy.Page[*store.Sandbox]{}, err
	}
	return record.Page(items, limit, func(b *store.Sandbox) string { return record.Cursor(b.CreatedAt, b.ID) }), nil
}

// SandboxesInState implements store.Store.
func (s *Store) SandboxesInState(ctx context.Context, states ...bothy.State) ([]*store.Sandbox, error) {
	if len(states) == 0 {
		return nil, nil
	}
	var q selection
	in(&q, "state", states)
	return s.sandboxes(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE "+q.where[0]+" ORDER BY created_at DESC, id DESC", q.args...)
}

// OwnSandboxesInState implements store.Store.
func (s *Store) OwnSandboxesInState(ctx context.Context, states ...bothy.State) ([]*store.Sandbox, error) {
	return s.SandboxesInState(ctx, states...)
}

// sandboxColumns are what sandboxes are read from.
const sandboxColumns = "record, version"

func (s *Store) sandboxes(ctx context.Context, text string, args ...any) ([]*store.Sandbox, error) {
	rows, err := s.read.QueryContext(ctx, text, args...)
	return collect("list sandboxes", rows, err, func(rows *sql.Rows) (*store.Sandbox, error) {
		var text string
		var version int64
		if err := rows.Scan(&text, &version); err != nil {
			return nil, err
		}
		return record.DecodeSandbox(text, version)
	})
}

// decoded scans rows with a single record.
func decoded[T any](decode func(string) (T, error)) func(*sql.Rows) (T, error) {
	return func(rows *sql.Rows) (v T, err error) {
		var text string
		if err := rows.Scan(&text); err != nil {
			return v, err
		}
		return decode(text)
	}
}

// collect scans rows.
func collect[T any](op string, rows *sql.Rows, err error, scan func(*sql.Rows) (T, error)) ([]T, error) {
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", op, err)
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("store: %s: %w", op, err)
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("store: %s: %w", op, err)
	}
	return out, nil
}

// SandboxesToResume implements store.Store.
func (s *Store) SandboxesToResume(ctx context.Context, by time.Time, limit int) ([]*store.Sandbox, error) {
	return s.sandboxes(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE resume_at <= ? AND state = 'paused' ORDER BY resume_at, id LIMIT ?", nanos(by), limit)
}

// DeleteSandboxesEndedBefore implements store.Store.
func (s *Store) DeleteSandboxesEndedBefore(ctx context.Context, t time.Time) (int, error) {
	return s.deleteOld(ctx, "forget sandboxes", s.stmt.forgetSandboxes, t)
}
