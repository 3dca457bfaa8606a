package bounded

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
)

// JSONLimits are the limits of a JSON document.
type JSONLimits struct {
	Bytes int64
	// Depth limits nested objects and arrays, and Values all values together.
	Depth, Values int64
	// Known refuses fields that v lacks.
	Known bool
}

// JSON decodes a document into v. If there is none, the error is io.EOF.
func JSON(ctx context.Context, r io.Reader, v any, l JSONLimits) error {
	data, err := ReadAll(ctx, r, l.Bytes)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return io.EOF
	}
	if err := l.measure(data); err != nil {
		return err
	}
	if !l.Known || !json.Valid(data) {
		return json.Unmarshal(data, v)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(v)
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
