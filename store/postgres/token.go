package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/record"
)

// PutToken implements store.Store.
func (s *Store) PutToken(ctx context.Context, t *store.Token) error {
	text, err := record.EncodeToken(t)
	if err != nil {
		return fmt.Errorf("store: put token %s: %w", t.ID, err)
	}
	_, err = s.change(ctx, "put token", whole, do(`INSERT INTO tokens (id, project, hash, created_at, last_used_at, record) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (id) DO UPDATE SET project = excluded.project, hash = excluded.hash,
		created_at = excluded.created_at, last_used_at = excluded.last_used_at, record = excluded.record`,
		t.ID, t.ProjectID, t.Hash, nanos(t.CreatedAt), nanosOrNull(t.LastUsedAt), text))
	return err
}

func scanToken(row pgx.CollectableRow) (*store.Token, error) {
	var text string
	var lastUsed *int64
	if err := row.Scan(&text, &lastUsed); err != nil {
		return nil, err
	}
	return record.DecodeToken(text, lastUsed)
}

// TokenByHash implements store.Store.
func (s *Store) TokenByHash(ctx context.Context, hash string) (*store.Token, error) {
	t, found, err := first(ctx, s, "get token", `SELECT record, last_used_at FROM tokens WHERE hash = $1`, []any{hash}, scanToken)
	if err == nil && !found {
		return nil, bothy.Errorf(bothy.CodeNotFound, "there is no token with this key")
	}
	return t, err
}

// TokenHashes implements store.Store.
func (s *Store) TokenHashes(ctx context.Context) ([]string, error) {
	return list(ctx, s, "list hashes", `SELECT hash FROM tokens`, nil, word)
}

// Tokens implements store.Store.
func (s *Store) Tokens(ctx context.Context, projectID string) ([]*store.Token, error) {
	return list(ctx, s, "list tokens", `SELECT record, last_used_at FROM tokens WHERE project = $1 ORDER BY created_at, id`, []any{projectID}, scanToken)
}

// DeleteToken implements store.Store.
func (s *Store) DeleteToken(ctx context.Context, projectID, id string) error {
	var n int
	err := s.transaction(ctx, "delete token", once, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM tokens WHERE project = $1 AND id = $2`, clean([]any{projectID, id})...)
		if n = int(tag.RowsAffected()); err != nil || n == 0 {
			return err
		}
		// A concurrent AddLink locks the token's row, so its link is visible here.
		_, err = tx.Exec(ctx, `DELETE FROM links WHERE token_id = $1`, clean([]any{id})...)
		return err
	})
	if err == nil && n == 0 {
		return bothy.Errorf(bothy.CodeNotFound, "there is no token %q", id).
			WithHint("List the tokens with `bothy token ls` or GET /v1/tokens.")
	}
	return err
}

// TouchToken implements store.Store. The time of the last use never decreases.
func (s *Store) TouchToken(ctx context.Context, id string, usedAt time.Time) error {
	_, err := s.change(ctx, "touch token", light, do(`UPDATE tokens SET last_used_at = greatest(coalesce(last_used_at, 0), $1) WHERE id = $2`, nanos(usedAt), id))
	return err
}
