package e2b

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
)

// everyPage reads a list to its end.
func everyPage[T any](read func(cursor string) (bothy.Page[T], error)) (all []T, err error) {
	for cursor := ""; ; {
		p, err := read(cursor)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Items...)
		if cursor = p.NextCursor; cursor == "" {
			return all, nil
		}
	}
}

// cut returns the page after the item that the token names, and the token of the next page,
// which is empty on the last.
func cut[T any](all []T, token string, limit int, name func(T) string) (page []T, next string) {
	if token != "" {
		for i, v := range all {
			if name(v) == token {
				all = all[i+1:]
				break
			}
		}
	}
	if len(all) > limit {
		return all[:limit], name(all[limit-1])
	}
	return all, ""
}

// split parses a list in a query, in either of the forms that clients use.
func split(values []string) (all []string) {
	for _, v := range values {
		for s := range strings.SplitSeq(v, ",") {
			if s != "" {
				all = append(all, s)
			}
		}
	}
	return all
}

func number(q url.Values, name string, otherwise, least, most int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, invalid("%s is %q; give a number from %d to %d", name, text, least, most)
	}
	return n, nil
}
