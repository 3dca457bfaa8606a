package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store/record"
)

// AddEvent implements store.Store.
func (s *Store) AddEvent(ctx context.Context, e *bothy.Event) error {
	text, err := record.EncodeEvent(e)
	if err != nil {
		return fmt.Errorf("store: add event: %w", err)
	}
	r, err := s.exec(ctx, "add event", s.stmt.addEvent, e.ProjectID, nanos(e.Time), text)
	if err != nil {
		return err
	}
	e.ID, err = r.LastInsertId()
	return err
}

// Events implements store.Store.
func (s *Store) Events(ctx context.Context, projectID string, since int64, limit int) ([]bothy.Event, error) {
	return listEvents(ctx, s.stmt.events, projectID, since, limit)
}

// EventsBefore implements store.Store.
func (s *Store) EventsBefore(ctx context.Context, projectID string, before int64, limit int) ([]bothy.Event, error) {
	return listEvents(ctx, s.stmt.eventsBefore, projectID, before, limit)
}

func listEvents(ctx context.Context, stmt *sql.Stmt, projectID string, id int64, limit int) ([]bothy.Event, error) {
	rows, err := stmt.QueryContext(ctx, projectID, id, record.PageSize(limit))
	if err != nil {
		return nil, fmt.Errorf("store: list events: %w", err)
	}
	defer rows.Close()
	var out []bothy.Event
	for rows.Next() {
		var id int64
		var text string
		if err := rows.Scan(&id, &text); err != nil {
			return nil, fmt.Errorf("store: list events: %w", err)
		}
		e, err := record.DecodeEvent(id, text)
		if err != nil {
			return nil, fmt.Errorf("store: list events: %w", err)
		}
		out = append(out, e)
	}
	return out, rows.Err()
}

// LastEvent implements store.Store.
func (s *Store) LastEvent(ctx context.Context) (id int64, err error) {
	if err = s.stmt.lastEvent.QueryRowContext(ctx).Scan(&id); err != nil {
		return 0, fmt.Errorf("store: find the last event: %w", err)
	}
	return id, nil
}

// DeleteEventsBefore implements store.Store.
func (s *Store) DeleteEventsBefore(ctx context.Context, t time.Time) (int, error) {
	return s.deleteOld(ctx, "forget events", s.stmt.forgetEvents, t)
}
