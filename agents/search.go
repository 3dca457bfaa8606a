package agents

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	maxGlob = 200
	// maxTree limits the paths that are searched, in bytes.
	maxTree = 16 << 20
)

type globInput struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

// find lists everything below a folder: modification time, a space, and the path.
const findScript = `cd -- "$1" || exit 1
if find --version >/dev/null 2>&1
then find . -mindepth 1 -printf '%T@ %P\0'
else find . -mindepth 1 -print0
fi 2>/dev/null`

func (s *session) glob(ctx context.Context, sandbox string, g globInput) ([]block, error) {
	if g.Pattern == "" {
		return nil, errors.New("pattern is required")
	}
	if path.IsAbs(g.Pattern) || slices.Contains(strings.Split(g.Pattern, "/"), "..") {
		return nil, fmt.Errorf("pattern %q must be relative, without a segment \"..\"; give the folder as path", g.Pattern)
	}
	pattern := strings.Split(strings.TrimPrefix(g.Pattern, "./"), "/")
	for _, p := range pattern {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", g.Pattern, err)
		}
	}
	root := in(cmp.Or(g.Path, "."))
	out, err := s.run(ctx, sandbox, maxTree, "sh", "-c", findScript, "sh", root)
	if err != nil {
		return nil, err
	}
	if out.code != 0 && len(out.stdout) == 0 {
		return nil, fmt.Errorf("%s: %s", root, cmp.Or(strings.TrimSpace(string(out.stderr)), "it cannot be listed"))
	}
	type entry struct {
		path string
		time float64
	}
	var found []entry
	for line := range bytes.SplitSeq(out.stdout, []byte{0}) {
		when, name, ok := strings.Cut(string(line), " ")
		at, err := strconv.ParseFloat(when, 64)
		if !ok || err != nil {
			at, name = 0, strings.TrimPrefix(string(line), "./")
		}
		if name != "" && matches(pattern, strings.Split(name, "/")) {
			found = append(found, entry{path.Join(root, name), at})
		}
	}
	if len(found) == 0 {
		return text("no matches"), nil
	}
	slices.SortStableFunc(found, func(a, b entry) int { return cmp.Or(cmp.Compare(b.time, a.time), cmp.Compare(a.path, b.path)) })
	var b strings.Builder
	for i, e := range found {
		if i == maxGlob {
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(strings.ToValidUTF8(e.path, "\uFFFD"))
	}
	if len(found) > maxGlob || out.cut {
		b.WriteString("\n" + cutMark)
	}
	return text(b.String()), nil
}

// matches reports whether a path matches a pattern, in which ** stands for any folders.
func matches(pattern, name []string) bool {
	// row[j] says whether the part of the pattern so far matches the first j segments.
	row := make([]bool, len(name)+1)
	row[0] = true
	for _, p := range pattern {
		next := make([]bool, len(name)+1)
		for j := range next {
			if p == "**" {
				next[j] = row[j] || j > 0 && next[j-1]
			} else if j > 0 && row[j-1] {
				next[j], _ = path.Match(p, name[j-1])
			}
		}
		row = next
	}
	return row[len(name)]
}

type grepInput struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

// grepScript searches with what the template has: ripgrep, or GNU grep with Perl's syntax, or
// any other grep.
const grepScript = `if command -v rg >/dev/null
then exec rg -n --no-heading --with-filename --color never --max-filesize 8M -e "$1" -- "$2"
elif echo a | grep -qP a 2>/dev/null
then exec grep -rnIHP --exclude-dir=.git --exclude-dir=node_modules -e "$1" -- "$2"
else exec grep -rnHE -e "$1" "$2"
fi`

func (s *session) grep(ctx context.Context, sandbox string, g grepInput) ([]block, error) {
	if g.Pattern == "" {
		return nil, errors.New("pattern is required")
	}
	root := in(cmp.Or(g.Path, "."))
	out, err := s.run(ctx, sandbox, outputLimit, "sh", "-c", grepScript, "sh", g.Pattern, root)
	if err != nil {
		return nil, err
	}
	found := strings.ToValidUTF8(string(out.stdout), "\uFFFD")
	switch {
	case out.cut:
		return text(found + "\n" + cutMark), nil
	case found != "": // some files may not have been readable
		return text(strings.TrimSuffix(found, "\n")), nil
	case out.code <= 1:
		return text("no matches"), nil
	}
	return nil, errors.New(cmp.Or(strings.TrimSpace(string(out.stderr)), fmt.Sprintf("it ended with %d", out.code)))
}
