package acp

import (
	"encoding/json"
	"strings"
)

// pathFields are the fields of the protocol that contain paths, wherever they occur.
var pathFields = map[string]bool{"cwd": true, "path": true, "uri": true, "additionalDirectories": true}

// translate rewrites the paths in raw, or returns it unchanged.
func translate(raw json.RawMessage, to func(string) (string, bool)) json.RawMessage {
	var value any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if d.Decode(&value) != nil || !walk(value, false, to) {
		return raw
	}
	b, err := json.Marshal(value)
	if err != nil {
		return raw
	}
	return b
}

// walk rewrites the paths in value in place and reports whether there were any.
func walk(value any, isPath bool, to func(string) (string, bool)) (changed bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			if text, ok := item.(string); ok && pathFields[key] {
				if moved, ok := move(text, to); ok {
					v[key], changed = moved, true
				}
				continue
			}
			changed = walk(item, pathFields[key], to) || changed
		}
	case []any:
		for i, item := range v {
			if text, ok := item.(string); ok && isPath {
				if moved, ok := move(text, to); ok {
					v[i], changed = moved, true
				}
				continue
			}
			changed = walk(item, isPath, to) || changed
		}
	}
	return changed
}

const fileURI = "file://"

// move translates a path, or the URI of a file.
func move(text string, to func(string) (string, bool)) (string, bool) {
	if rest, ok := strings.CutPrefix(text, fileURI); ok {
		moved, ok := to(rest)
		return fileURI + moved, ok
	}
	return to(text)
}
