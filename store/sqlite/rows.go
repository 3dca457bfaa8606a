package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/bothy-dev/bothy/internal/random"
	"github.com/bothy-dev/bothy/store"
)

var _ store.Rows = (*Store)(nil)

// ReadRows implements store.Rows.
func (s *Store) ReadRows(ctx context.Context, t store.Table, each func([]any) error) error {
	db, columns, from := s.read, strings.Join(t.Columns, ", "), t.Name
	switch t.Name {
	case "answers":
		db = s.answers.db
	case "events_end":
		columns, from = "seq", "sqlite_sequence WHERE name = 'events' AND seq > 0"
	case "audit_ends":
		from += " WHERE last_id > 0"
	case "usage_hours":
		columns = strings.Replace(columns, "project", "h.project", 1)
		from += " h JOIN usage_keys k ON k.id = h.key"
	}
	rows, err := db.QueryContext(ctx, "SELECT "+columns+" FROM "+from)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		row := make([]any, len(t.Columns))
		into := make([]any, len(row))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if err := each(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// WriteRows implements store.Rows.
func (s *Store) WriteRows(ctx context.Context, t store.Table, rows [][]any) error {
	switch t.Name {
	case "usage_hours":
		return s.writeHours(ctx, rows)
	case "answers":
		s.answers.mu.Lock()
		defer s.answers.mu.Unlock()
		if err := insert(ctx, s.answers.db, t, rows); err != nil {
			return err
		}
		return s.answers.count(ctx)
	}
	s.write.Lock()
	defer s.write.Unlock()
	switch t.Name {
	case "events_end":
		// The row does not exist before the first event.
		_, err := s.fast.ExecContext(ctx, `DELETE FROM sqlite_sequence WHERE name = 'events'`)
		if err == nil {
			_, err = s.fast.ExecContext(ctx, `INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)`, rows[0]...)
		}
		return err
	case "audit_ends":
		_, err := s.fast.ExecContext(ctx, `UPDATE audit_ends SET after_id = ?, after_hash = ?, last_id = ?, last_hash = ?`, rows[0]...)
		return err
	}
	return insert(ctx, s.fast, t, rows)
}

func insert(ctx context.Context, db *sql.DB, t store.Table, rows [][]any) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	st, err := tx.PrepareContext(ctx, "REPLACE INTO "+t.Name+" ("+strings.Join(t.Columns, ", ")+") VALUES (?"+strings.Repeat(", ?", len(t.Columns)-1)+")")
	if err != nil {
		return err
	}
	defer st.Close()
	for _, row := range rows {
		if _, err := st.ExecContext(ctx, row...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// writeHours writes usage as a server does, with everything derived from it.
func (s *Store) writeHours(ctx context.Context, rows [][]any) error {
	b := store.UsageBatch{ID: random.Hex(16)}
	for _, row := range rows {
		var r store.UsageRow
		for i, into := range []*string{&r.Project, &r.Template, &r.Sandbox, &r.Labels} {
			text, ok := row[i].(string)
			if !ok {
				return fmt.Errorf("%v is not a string", row[i])
			}
			*into = text
		}
		numbers := []*int64{&r.Hour}
		for i := range r.Counts {
			numbers = append(numbers, &r.Counts[i])
		}
		for i, into := range numbers {
			n, ok := row[4+i].(int64)
			if !ok {
				return fmt.Errorf("%v is not an integer", row[4+i])
			}
			*into = n
		}
		b.Rows = append(b.Rows, r)
	}
	return s.WriteUsage(ctx, b)
}
