package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

const loginColumns = `hash, project, token_id, code, created_at, expires_at`

// AddLogin implements store.Store.
func (s *Store) AddLogin(ctx context.Context, l *store.Login, b store.LoginBounds) error {
	_, err := s.change(ctx, "add login", whole,
		do(`INSERT INTO logins (`+loginColumns+`) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
			l.Hash, l.ProjectID, l.TokenID, l.Code, nanos(l.CreatedAt), nanos(l.ExpiresAt)),
		do(`DELETE FROM logins WHERE code = $1 AND (expires_at <= $2
			OR hash IN (SELECT hash FROM logins WHERE code = $1 AND token_id = $3 ORDER BY created_at DESC OFFSET $4)
			OR hash IN (SELECT hash FROM (SELECT hash, created_at, row_number() OVER (PARTITION BY project ORDER BY created_at DESC) AS nth
				FROM logins WHERE code = $1) AS ranked ORDER BY nth, created_at DESC OFFSET $5))`,
			l.Code, nanos(l.CreatedAt), l.TokenID, b.PerToken, b.All))
	return err
}

func scanLogin(row pgx.CollectableRow) (*store.Login, error) {
	l := &store.Login{}
	var created, expires int64
	err := row.Scan(&l.Hash, &l.ProjectID, &l.TokenID, &l.Code, &created, &expires)
	l.CreatedAt, l.ExpiresAt = time.Unix(0, created).UTC(), time.Unix(0, expires).UTC()
	return l, err
}

func noLogin() error { return bothy.Errorf(bothy.CodeNotFound, "there is no such login") }

// Login implements store.Store.
func (s *Store) Login(ctx context.Context, hash string) (*store.Login, error) {
	l, found, err := first(ctx, s, "get login", `SELECT `+loginColumns+` FROM logins WHERE hash = $1`, []any{hash}, scanLogin)
	if err == nil && !found {
		return nil, noLogin()
	}
	return l, err
}

// TakeLogin implements store.Store.
func (s *Store) TakeLogin(ctx context.Context, hash string) (l *store.Login, err error) {
	err = s.changing(ctx, "take login", once, func(ctx context.Context) error {
		_, err := s.send(ctx, once, []statement{do(`DELETE FROM logins WHERE hash = $1 RETURNING `+loginColumns, hash)}, func(rows pgx.Rows) error {
			found, err := pgx.CollectRows(rows, scanLogin)
			if err == nil && len(found) == 0 {
				return noLogin()
			}
			if err == nil {
				l = found[0]
			}
			return err
		})
		return err
	})
	return l, err
}

// HaveLogins implements store.Store.
func (s *Store) HaveLogins(ctx context.Context, hashes []string) ([]string, error) {
	return list(ctx, s, "find logins", `SELECT hash FROM logins WHERE hash = ANY($1::text[])`, []any{hashes}, pgx.RowTo[string])
}

// DeleteLogin implements store.Store.
func (s *Store) DeleteLogin(ctx context.Context, hash string) error {
	_, err := s.change(ctx, "delete login", whole, do(`DELETE FROM logins WHERE hash = $1`, hash))
	return err
}
