package folder

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever is changed at random on both sides: what was written is on one of them until somebody
// who had it replaces or removes it.
func TestNothingThatWasWrittenIsLost(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newSides(t, Options{Exclude: []string{"*.log"}})
			e := editor{sides: s, rand: rand.New(rand.NewPCG(seed, 1)), alive: map[string]string{}}
			for range 12 {
				for range e.rand.IntN(4) {
					e.edit(s.here)
				}
				for range e.rand.IntN(4) {
					e.edit(s.box.path("w"))
				}
				s.sync()
				e.check()
				if t.Failed() {
					return
				}
			}
		})
	}
}

// editor changes files at random.
type editor struct {
	*sides
	rand  *rand.Rand
	count int
	// alive is what nobody has replaced or removed, and how it was written.
	alive map[string]string
	steps []string
}

var editedNames = []string{"a", "b.log", "d", "d/x", "d/y.log", "d/e/z", ".git/HEAD", ".git/config", ".git/refs/heads/main"}

func (e *editor) edit(root string) {
	name := editedNames[e.rand.IntN(len(editedNames))]
	side := "here"
	if root != e.here {
		side = "there"
	}
	full := filepath.Join(root, name)
	for dir := filepath.Dir(full); dir != root; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
			return
		}
	}
	what := e.rand.IntN(10)
	e.steps = append(e.steps, fmt.Sprintf("%s %s %d", side, name, what))
	if info, err := os.Lstat(full); err == nil && (what >= 7 || !info.Mode().IsRegular()) {
		e.forget(full)
		e.remove(root, name)
	}
	switch {
	case what == 9:
		_ = os.MkdirAll(filepath.Dir(full), 0o755)
		_ = os.Symlink([]string{"a", "/etc/passwd"}[e.rand.IntN(2)], full)
	case what < 7:
		e.forget(full)
		e.count++
		content := fmt.Sprintf("<%s %d>", side, e.count)
		e.alive[content] = side + " " + name
		e.put(root, name, content)
	}
}

// forget is called before somebody replaces or removes what lies at a path.
func (e *editor) forget(full string) {
	for content := range contents(full) {
		delete(e.alive, content)
	}
}

func (e *editor) check() {
	e.Helper()
	e.steps = append(e.steps, "sync")
	there := contents(e.here)
	for content := range contents(e.box.path("w")) {
		there[content] = true
	}
	for content, from := range e.alive {
		if !there[content] {
			e.Errorf("%s, written to %s, is gone after %s; %q", content, from, strings.Join(e.steps, ", "), e.notes)
		}
	}
}

// contents is what the files at and below a path say.
func contents(full string) map[string]bool {
	found := map[string]bool{}
	_ = filepath.WalkDir(full, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			b, _ := os.ReadFile(name)
			found[string(b)] = true
		}
		return nil
	})
	return found
}
