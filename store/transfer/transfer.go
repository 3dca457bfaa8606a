// Package transfer copies all records of one store to another of any kind. Only server uses it.
package transfer

import (
	"context"
	"errors"
	"fmt"

	"github.com/bothy-dev/bothy/store"
)

// atOnce is the number of rows per write.
const atOnce = 1000

// Moved is the number of transferred rows of a table.
type Moved struct {
	Table string `json:"table"`
	Rows  int    `json:"rows"`
}

// errFound stops reading a table.
var errFound = errors.New("there is a row")

// Empty reports whether a store has no records.
func Empty(ctx context.Context, s store.RowReader) (bool, error) {
	for _, t := range store.Tables {
		err := s.ReadRows(ctx, t, func([]any) error { return errFound })
		if errors.Is(err, errFound) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read %s: %w", t.Name, err)
		}
	}
	return true, nil
}

// Rows copies all rows from one store to another, which must be empty.
func Rows(ctx context.Context, from store.RowReader, to store.Rows) (all []Moved, err error) {
	for _, t := range store.Tables {
		n, err := table(ctx, t, from, to)
		if err != nil {
			return all, fmt.Errorf("transfer %s: %w", t.Name, err)
		}
		all = append(all, Moved{t.Name, n})
	}
	return all, nil
}

func table(ctx context.Context, t store.Table, from store.RowReader, to store.Rows) (n int, err error) {
	var some [][]any
	write := func() error {
		if len(some) == 0 {
			return nil
		}
		n += len(some)
		err := to.WriteRows(ctx, t, some)
		some = nil
		return err
	}
	err = from.ReadRows(ctx, t, func(row []any) error {
		if some = append(some, row); len(some) < atOnce {
			return nil
		}
		return write()
	})
	if err == nil {
		err = write()
	}
	return n, err
}
