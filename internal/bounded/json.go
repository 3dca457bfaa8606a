package bounded

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// JSONLimits are the limits of a JSON document.
type JSONLimits struct {
	Bytes int64
	// Depth limits nested objects and arrays, and Values all values together.
	Depth, Values int64
	// Unique refuses objects in which two keys are equal, or differ only in case: parsers
	// differ in which of them they use, and encoding/json ignores case.
	Unique bool
}

// JSON decodes a document into v.
func JSON(ctx context.Context, r io.Reader, v any, l JSONLimits) error {
	data, err := ReadAll(ctx, r, l.Bytes)
	if err != nil {
		return err
	}
	if err := l.measure(data); err != nil {
		return err
	}
	if l.Unique {
		if err := unique(data); err != nil {
			return err
		}
	}
	return json.Unmarshal(data, v)
}

// measure counts before anything is decoded. What is no JSON is left to the decoder.
func (l JSONLimits) measure(data []byte) error {
	depth, values := int64(0), int64(1)
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			values++
		case '}', ']':
			depth--
		case ',':
			values++
		}
		if depth > l.Depth {
			return &Error{l.Depth, "levels"}
		}
		if values > l.Values {
			return &Error{l.Values, "values"}
		}
	}
	return nil
}

func unique(data []byte) error {
	type level struct {
		keys map[string]bool // nil in an array
		key  bool            // a key comes next
	}
	var above []level
	for d := json.NewDecoder(bytes.NewReader(data)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if token == json.Delim('}') || token == json.Delim(']') {
			above = above[:len(above)-1]
			continue
		}
		if n := len(above) - 1; n >= 0 && above[n].keys != nil {
			if above[n].key {
				key, _ := token.(string)
				if above[n].keys[fold(key)] {
					return fmt.Errorf("the key %q is there twice", Short(key))
				}
				above[n].keys[fold(key)] = true
			}
			above[n].key = !above[n].key
		}
		switch token {
		case json.Delim('{'):
			above = append(above, level{map[string]bool{}, true})
		case json.Delim('['):
			above = append(above, level{})
		}
	}
}

// fold returns the same string for keys that differ only in case, as encoding/json does.
func fold(key string) string {
	return strings.Map(func(r rune) rune {
		for least := unicode.SimpleFold(r); ; least = unicode.SimpleFold(least) {
			if least <= r {
				return least
			}
		}
	}, key)
}
