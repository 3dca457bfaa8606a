package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

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
	st := s.stmt.putSandbox
	if b.State == bothy.StatePaused || len(b.Checkpoints) > 0 { // a checkpoint that no row lists would be deleted
		st = s.stmt.putSandboxDurably
	}
	_, err = s.exec(ctx, "put sandbox", st, b.ID, b.ProjectID, b.Name, string(b.State),
		nanos(b.CreatedAt), endedAt(b), b.Pooled, string(metadata), text, nanosOrNull(b.ResumeAt()))
	return err
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
	err := s.stmt.sandbox.QueryRowContext(ctx, id).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, bothy.Errorf(bothy.CodeSandboxNotFound, "there is no sandbox %q", id).
			WithHint("List your sandboxes with `bothy ls` or GET /v1/sandboxes.")
	}
	if err != nil {
		return nil, fmt.Errorf("store: get sandbox %s: %w", id, err)
	}
	return record.DecodeSandbox(text)
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
	text, args := q.query("sandboxes", limit)
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
	return s.sandboxes(ctx, "SELECT record FROM sandboxes WHERE "+q.where[0]+" ORDER BY created_at DESC, id DESC", q.args...)
}

// OwnSandboxesInState implements store.Store.
func (s *Store) OwnSandboxesInState(ctx context.Context, states ...bothy.State) ([]*store.Sandbox, error) {
	return s.SandboxesInState(ctx, states...)
}

func (s *Store) sandboxes(ctx context.Context, text string, args ...any) ([]*store.Sandbox, error) {
	rows, err := s.read.QueryContext(ctx, text, args...)
	return collect("list sandboxes", rows, err, record.DecodeSandbox)
}

// collect decodes rows of records.
func collect[T any](op string, rows *sql.Rows, err error, decode func(string) (T, error)) ([]T, error) {
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", op, err)
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, fmt.Errorf("store: %s: %w", op, err)
		}
		v, err := decode(text)
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
	return s.sandboxes(ctx, "SELECT record FROM sandboxes WHERE resume_at <= ? AND state = 'paused' ORDER BY resume_at, id LIMIT ?", nanos(by), limit)
}

// DeleteSandboxesEndedBefore implements store.Store.
func (s *Store) DeleteSandboxesEndedBefore(ctx context.Context, t time.Time) (int, error) {
	return s.deleteOld(ctx, "forget sandboxes", s.stmt.forgetSandboxes, t)
}
