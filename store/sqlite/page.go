package sqlite

import (
	"strings"

	"github.com/bothy-dev/bothy/store/record"
)

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
	created, id, err := record.ParseCursor(cursor)
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

// query selects one row more than the page size, to determine whether it is the last page.
func (q *selection) query(columns, table string, limit int) (string, []any) {
	return "SELECT " + columns + " FROM " + table + " WHERE " + strings.Join(q.where, " AND ") +
		" ORDER BY created_at DESC, id DESC LIMIT ?", append(q.args, limit+1)
}
