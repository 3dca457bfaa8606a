package files

import (
	"path"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
)

// pattern matches entries that an archive omits.
type pattern struct {
	parts   []string
	folders bool // it ends with a slash
}

// excludes says which entries of a folder an archive omits.
type excludes []pattern

// parseExcludes reads patterns like those of a .gitignore, without negation. A pattern without a
// slash, other than at its end, matches entries of that name at any depth.
func parseExcludes(list []string) (excludes, error) {
	var out excludes
	for _, s := range list {
		trimmed, folders := strings.CutSuffix(s, "/")
		parts := strings.Split(strings.TrimPrefix(trimmed, "/"), "/")
		for _, part := range parts {
			if _, err := path.Match(part, ""); err != nil || part == "" || part == "." || part == ".." {
				return nil, bothy.Errorf(bothy.CodeInvalid, "exclude: %s is not a pattern", quote(s)).
					WithHint(`Give names relative to the folder, such as "node_modules", "*.log", "build/" or "src/**/test".`)
			}
		}
		if len(parts) == 1 && !strings.HasPrefix(s, "/") {
			parts = []string{"**", parts[0]}
		}
		if parts[len(parts)-1] == "**" { // the content of a folder, but not the folder
			parts = append(parts, "*")
		}
		out = append(out, pattern{parts, folders})
	}
	return out, nil
}

// CheckExcludes returns an error for an invalid pattern.
func CheckExcludes(list []string) error {
	_, err := parseExcludes(list)
	return err
}

// match reports whether an entry is omitted. It is never called for entries below an omitted
// folder.
func (e excludes) match(name string, folder bool) bool {
	parts := strings.Split(name, "/")
	return slices.ContainsFunc(e, func(p pattern) bool {
		return (folder || !p.folders) && matchParts(p.parts, parts)
	})
}

// matchParts walks both lists; on a mismatch it lets the last ** match one more part, so its
// time is at most the product of the lengths.
func matchParts(pattern, name []string) bool {
	p, n, star, took := 0, 0, -1, 0
	for n < len(name) {
		if p < len(pattern) && pattern[p] == "**" {
			star, took = p, n
			p++
			continue
		}
		if p < len(pattern) {
			if ok, _ := path.Match(pattern[p], name[n]); ok {
				p, n = p+1, n+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		took++
		p, n = star+1, took
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	return p == len(pattern)
}
