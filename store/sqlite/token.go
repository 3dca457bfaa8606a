package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

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
	_, err = s.exec(ctx, "put token", s.stmt.putToken, t.ID, t.ProjectID, t.Hash, nanos(t.CreatedAt), nanosOrNull(t.LastUsedAt), text)
	return err
}

// TokenByHash implements store.Store.
func (s *Store) TokenByHash(ctx context.Context, hash string) (*store.Token, error) {
	var text string
	var lastUsed *int64
	err := s.stmt.tokenByHash.QueryRowContext(ctx, hash).Scan(&text, &lastUsed)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, bothy.Errorf(bothy.CodeNotFound, "there is no token with this key")
	}
	if err != nil {
		return nil, fmt.Errorf("store: get token: %w", err)
	}
	return record.DecodeToken(text, lastUsed)
}

// TokenHashes implements store.Store.
func (s *Store) TokenHashes(ctx context.Context) ([]string, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT hash FROM tokens`)
	if err != nil {
		return nil, fmt.Errorf("store: list hashes: %w", err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var hash string
		if err := rows.Scan(&hash); err != nil {
			return nil, fmt.Errorf("store: list hashes: %w", err)
		}
		out = append(out, hash)
	}
	return out, rows.Err()
}

// Tokens implements store.Store.
func (s *Store) Tokens(ctx context.Context, projectID string) ([]*store.Token, error) {
	rows, err := s.stmt.tokens.QueryContext(ctx, projectID)
	if err != nil {
		return nil, fmt.Errorf("store: list tokens: %w", err)
	}
	defer rows.Close()
	var out []*store.Token
	for rows.Next() {
		var text string
		var lastUsed *int64
		if err := rows.Scan(&text, &lastUsed); err != nil {
			return nil, fmt.Errorf("store: list tokens: %w", err)
		}
		t, err := record.DecodeToken(text, lastUsed)
		if err != nil {
			return nil, fmt.Errorf("store: list tokens: %w", err)
		}
		out = append(out, t)
	}
	return out, rows.Err()
}

// DeleteToken implements store.Store.
func (s *Store) DeleteToken(ctx context.Context, projectID, id string) error {
	n, err := s.execReserved(ctx, "delete token", s.stmt.deleteToken, projectID, id)
	if err == nil && n == 0 {
		return bothy.Errorf(bothy.CodeNotFound, "there is no token %q", id).
			WithHint("List the tokens with `bothy token ls` or GET /v1/tokens.")
	}
	return err
}

// TouchToken implements store.Store. The time of the last use never decreases.
func (s *Store) TouchToken(ctx context.Context, id string, usedAt time.Time) error {
	_, err := s.exec(ctx, "touch token", s.stmt.touchToken, nanos(usedAt), id)
	return err
}
