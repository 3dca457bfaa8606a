package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy/store"
)

const placeSQL = `SELECT id, location, created_at, used FROM places`

func scanPlace(row interface{ Scan(...any) error }) (p store.Place, err error) {
	var at int64
	err = row.Scan(&p.ID, &p.Location, &at, &p.Used)
	p.CreatedAt = time.Unix(0, at).UTC()
	return p, err
}

// Places implements store.Store.
func (s *Store) Places(ctx context.Context) (all []store.Place, err error) {
	rows, err := s.read.QueryContext(ctx, placeSQL+` ORDER BY used DESC, created_at, id`)
	if err != nil {
		return nil, fmt.Errorf("store: list places: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		p, err := scanPlace(rows)
		if err != nil {
			return nil, fmt.Errorf("store: list places: %w", err)
		}
		all = append(all, p)
	}
	return all, rows.Err()
}

// AddPlace implements store.Store.
func (s *Store) AddPlace(ctx context.Context, p store.Place) error {
	return s.changePlaces(ctx, "add a place", func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO places VALUES (?, ?, ?, 0) ON CONFLICT DO NOTHING`, p.ID, p.Location, nanos(p.CreatedAt))
		return err
	})
}

// UsePlace implements store.Store.
func (s *Store) UsePlace(ctx context.Context, p store.Place) (used store.Place, err error) {
	err = s.changePlaces(ctx, "use a place", func(ctx context.Context, tx *sql.Tx) error {
		used, err = scanPlace(tx.QueryRowContext(ctx, placeSQL+` WHERE used = 1`))
		if err == nil && used.ID != p.ID || err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM places WHERE id <> ?`, p.ID); err != nil {
			return err
		}
		used, err = scanPlace(tx.QueryRowContext(ctx, `INSERT INTO places VALUES (?, ?, ?, 1)
			ON CONFLICT (id) DO UPDATE SET location = excluded.location, used = 1 RETURNING id, location, created_at, used`, p.ID, p.Location, nanos(p.CreatedAt)))
		return err
	})
	return used, err
}

// ForgetPlaces implements store.Store.
func (s *Store) ForgetPlaces(ctx context.Context) error {
	return s.changePlaces(ctx, "forget places", func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM places`)
		return err
	})
}

// changePlaces applies a change atomically, such that it survives a power cut.
func (s *Store) changePlaces(ctx context.Context, op string, change func(context.Context, *sql.Tx) error) error {
	s.write.Lock()
	defer s.write.Unlock()
	tx, err := s.durable.BeginTx(ctx, nil)
	if err != nil {
		return s.fault(op, err)
	}
	defer tx.Rollback()
	if err = change(ctx, tx); err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return s.fault(op, err)
	}
	return nil
}
