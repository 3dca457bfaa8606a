package sqlite

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// Lists are ordered by creation, newest first, and then by id. A cursor names
// the last row of its page, so what is inserted meanwhile neither shifts nor
// repeats anything.

const (
	defaultLimit = 100
	maxLimit     = 1000
)

func pageSize(limit int) int {
	switch {
	case limit <= 0:
		return defaultLimit
	case limit > maxLimit:
		return maxLimit
	}
	return limit
}

func cursorAt(created time.Time, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(nanos(created), 36) + "." + id))
}

func parseCursor(c string) (created int64, id string, err error) {
	b, err := base64.RawURLEncoding.DecodeString(c)
	if err == nil {
		at, rest, found := strings.Cut(string(b), ".")
		if created, err = strconv.ParseInt(at, 36, 64); err == nil && found {
			return created, rest, nil
		}
	}
	return 0, "", bothy.Errorf(bothy.CodeInvalid, "the cursor %q is not one that a list returned", c).
		WithHint("Pass the next_cursor of the page before, unchanged, or leave it out to start at the first page.")
}

// selection collects the conditions of a list.
type selection struct {
	where []string
	args  []any
}

func (q *selection) add(cond string, args ...any) {
	q.where = append(q.where, cond)
	q.args = append(q.args, args...)
}

func (q *selection) after(cursor string) error {
	if cursor == "" {
		return nil
	}
	created, id, err := parseCursor(cursor)
	if err != nil {
		return err
	}
	q.add("(created_at, id) < (?, ?)", created, id)
	return nil
}

// in adds "column is one of values". No values select everything.
func in[T ~string](q *selection, column string, values []T) {
	if len(values) == 0 {
		return
	}
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = string(v)
	}
	q.add(column+" IN (?"+strings.Repeat(", ?", len(values)-1)+")", args...)
}

// query asks for one row more than fits the page, to see whether it is the last.
func (q *selection) query(table string, limit int) (string, []any) {
	return "SELECT record FROM " + table + " WHERE " + strings.Join(q.where, " AND ") +
		" ORDER BY created_at DESC, id DESC LIMIT ?", append(q.args, limit+1)
}

// page cuts the extra row off.
func page[T any](items []T, limit int, cursor func(T) string) bothy.Page[T] {
	p := bothy.Page[T]{Items: items}
	if len(items) > limit {
		p.Items = items[:limit]
		p.NextCursor = cursor(items[limit-1])
	}
	if p.Items == nil {
		p.Items = []T{}
	}
	return p
}
