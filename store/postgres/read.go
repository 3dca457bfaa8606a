package postgres

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy/store/record"
)

// readTimeout limits one attempt at a query.
const readTimeout = 30 * time.Second

// list queries rows.
func list[T any](ctx context.Context, s *Store, op, text string, args []any, scan func(pgx.CollectableRow) (T, error)) (out []T, err error) {
	args = clean(args)
	err = s.attempts(ctx, op, true, func() error {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		rows, err := s.pool.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, scan)
		return err
	})
	return out, err
}

// first queries one row, and reports whether there is one.
func first[T any](ctx context.Context, s *Store, op, text string, args []any, scan func(pgx.CollectableRow) (T, error)) (v T, found bool, err error) {
	out, err := list(ctx, s, op, text, args, scan)
	if err != nil || len(out) == 0 {
		return v, false, err
	}
	return out[0], true, nil
}

// decoded scans rows with a single record.
func decoded[T any](decode func(string) (T, error)) func(pgx.CollectableRow) (T, error) {
	return func(row pgx.CollectableRow) (v T, err error) {
		var text string
		if err := row.Scan(&text); err != nil {
			return v, err
		}
		return decode(text)
	}
}

// word scans rows with a single string.
func word(row pgx.CollectableRow) (s string, err error) { return s, row.Scan(&s) }

// selection collects the conditions of a query.
type selection struct {
	where []string
	args  []any
}

// add adds a condition, in which each ? is the next argument.
func (q *selection) add(cond string, args ...any) {
	for _, a := range args {
		q.args = append(q.args, a)
		cond = strings.Replace(cond, "?", "$"+strconv.Itoa(len(q.args)), 1)
	}
	q.where = append(q.where, cond)
}

func (q *selection) after(cursor string) error {
	if cursor == "" {
		return nil
	}
	created, id, err := record.ParseCursor(cursor)
	if err != nil {
		return err
	}
	q.add("(created_at, id) < (?, ?)", created, id)
	return nil
}

// in adds "column is one of values". No values select everything.
func in[T ~string](q *selection, column string, values []T) {
	if len(values) > 0 {
		q.add(column+" = ANY(?::text[])", words(values))
	}
}

func words[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// query selects one row more than the page size, to determine whether it is the last page.
func (q *selection) query(columns, table string, limit int) (string, []any) {
	return "SELECT " + columns + " FROM " + table + " WHERE " + strings.Join(q.where, " AND ") +
		" ORDER BY created_at DESC, id DESC LIMIT " + strconv.Itoa(limit+1), q.args
}

// deleteAtOnce is how many rows one change deletes, so that other writers do not wait for all
// of them.
const deleteAtOnce = 500

// deleteOld deletes rows older than t in batches, and returns how many.
func (s *Store) deleteOld(ctx context.Context, op, text string, t time.Time) (int, error) {
	for all := 0; ; {
		n, err := s.change(ctx, op, whole, do(text, nanos(t), deleteAtOnce))
		if all += n; err != nil || n < deleteAtOnce {
			return all, err
		}
	}
}

// nanos is how times are stored in columns: they compare and sort as numbers.
func nanos(t time.Time) int64 { return t.UnixNano() }

// nanosOrNull stores a missing time as NULL.
func nanosOrNull(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	n := t.UnixNano()
	return &n
}
