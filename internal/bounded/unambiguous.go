package bounded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Unambiguous refuses a JSON document of which two parsers could understand different things: one
// with a repeated key, also if the two differ in case alone, as encoding/json does not tell them
// apart; with text that is not UTF-8; or nested more than depth times, which some parsers do not
// follow. It counts the document's values and keys, and refuses more than limit.
func Unambiguous(b []byte, depth, limit int) (n int, err error) {
	if !utf8.Valid(b) {
		return 0, errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var open []*level
	for {
		t, err := d.Token()
		if err == io.EOF && len(open) == 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		if n++; n > limit {
			return 0, fmt.Errorf("it has more than %d values", limit)
		}
		top := &level{}
		if len(open) > 0 {
			top = open[len(open)-1]
		}
		switch {
		case t == json.Delim('{'), t == json.Delim('['):
			top.key = top.keys != nil
			if len(open) == depth {
				return 0, fmt.Errorf("its values are nested more than %d times", depth)
			}
			next := &level{}
			if t == json.Delim('{') {
				next.keys, next.key = map[string]bool{}, true
			}
			open = append(open, next)
		case t == json.Delim('}'), t == json.Delim(']'):
			open = open[:len(open)-1]
		case top.key:
			name := Fold(t.(string))
			if top.keys[name] {
				return 0, fmt.Errorf("it has the key %.100q twice", t)
			}
			top.keys[name], top.key = true, false
		default:
			top.key = top.keys != nil
		}
	}
}

// A level is an object or an array that has been begun.
type level struct {
	keys map[string]bool // of an object so far
	key  bool            // a key is next
}

// Fold returns the same string for all keys that differ in case alone.
func Fold(key string) string { return strings.Map(folded, key) }

// folded is the same for all characters that differ in case alone.
func folded(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}
