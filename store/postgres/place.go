package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy/store"
)

const placeSQL = `SELECT id, location, created_at, used FROM places`

func scanPlace(row pgx.CollectableRow) (p store.Place, err error) {
	var at int64
	err = row.Scan(&p.ID, &p.Location, &at, &p.Used)
	p.CreatedAt = time.Unix(0, at).UTC()
	return p, err
}

// Places implements store.Store.
func (s *Store) Places(ctx context.Context) ([]store.Place, error) {
	return list(ctx, s, "list places", placeSQL+` ORDER BY used DESC, created_at, id`, nil, scanPlace)
}

// AddPlace implements store.Store.
func (s *Store) AddPlace(ctx context.Context, p store.Place) error {
	_, err := s.change(ctx, "add a place", whole, do(`INSERT INTO places VALUES ($1, $2, $3, false) ON CONFLICT DO NOTHING`, p.ID, p.Location, nanos(p.CreatedAt)))
	return err
}

// UsePlace implements store.Store.
func (s *Store) UsePlace(ctx context.Context, p store.Place) (used store.Place, err error) {
	err = s.transaction(ctx, "use a place", whole, func(ctx context.Context, tx pgx.Tx) error {
		// Serialise hosts: the first decides for all.
		if _, err := tx.Exec(ctx, `LOCK TABLE places IN SHARE ROW EXCLUSIVE MODE`); err != nil {
			return err
		}
		one := func(text string, args ...any) error {
			rows, err := tx.Query(ctx, text, clean(args)...)
			if err == nil {
				used, err = pgx.CollectExactlyOneRow(rows, scanPlace)
			}
			return err
		}
		err := one(placeSQL + ` WHERE used`)
		if err == nil && used.ID != p.ID || err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM places WHERE id <> $1`, clean([]any{p.ID})...); err != nil {
			return err
		}
		return one(`INSERT INTO places VALUES ($1, $2, $3, true)
			ON CONFLICT (id) DO UPDATE SET location = excluded.location, used = true RETURNING id, location, created_at, used`, p.ID, p.Location, nanos(p.CreatedAt))
	})
	return used, err
}

// ForgetPlaces implements store.Store.
func (s *Store) ForgetPlaces(ctx context.Context) error {
	_, err := s.change(ctx, "forget places", whole, do(`DELETE FROM places`))
	return err
}
