package record

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// Lists are ordered by creation, newest first, and then by id. A cursor names the last row of
// its page, so rows inserted meanwhile neither shift nor repeat anything.

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// PageSize returns the page size for a requested limit; 0 means the default.
func PageSize(limit int) int {
	switch {
	case limit <= 0:
		return defaultLimit
	case limit > maxLimit:
		return maxLimit
	}
	return limit
}

// Cursor encodes a row's creation time and id.
func Cursor(created time.Time, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(created.UnixNano(), 36) + "." + id))
}

// ParseCursor decodes a cursor.
func ParseCursor(c string) (created int64, id string, err error) {
	b, err := base64.RawURLEncoding.DecodeString(c)
	if err == nil {
		at, rest, found := strings.Cut(string(b), ".")
		if created, err = strconv.ParseInt(at, 36, 64); err == nil && found {
			return created, rest, nil
		}
	}
	return 0, "", bothy.Errorf(bothy.CodeInvalid, "the cursor %q is invalid", c).
		WithHint("Pass the next_cursor of the previous page unchanged, or omit it to start at the first page.")
}

// Page makes a page from the result of a query with limit+1.
func Page[T any](items []T, limit int, cursor func(T) string) bothy.Page[T] {
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
