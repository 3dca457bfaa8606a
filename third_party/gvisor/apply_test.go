package gvisor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	original = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n"
	changed  = "one\ntwo\nthree\nfour\nFIVE\nsix\nseven\neight\nnine\n"
	patch    = "Why: to shout\n\n--- pkg/a.txt\n+++ pkg/a.txt\n@@ -2,7 +2,7 @@\n two\n three\n four\n-five\n+FIVE\n six\n seven\n eight\n"
)

// A patch fits with all of its context and at its line, or not at all.
func TestApplyIsStrict(t *testing.T) {
	const name = "0007-shout.patch"
	for what, c := range map[string]struct{ tree, patch, refused string }{
		"fits":                          {original, patch, ""},
		"other context far away":        {strings.Replace(original, "two", "2", 1), patch, name},
		"other context":                 {strings.Replace(original, "six", "6", 1), patch, name},
		"one line further down":         {"zero\n" + original, patch, name},
		"one line further up":           {strings.TrimPrefix(original, "one\n"), patch, name},
		"applied already":               {changed, patch, name},
		"a damaged hunk":                {original, strings.Replace(patch, " six\n", "", 1), name},
		"no such file":                  {original, strings.ReplaceAll(patch, "a.txt", "b.txt"), name},
		"nothing but files to be added": {original, "Why: none\n", "unchanged"},
	} {
		t.Run(what, func(t *testing.T) {
			tree, series := t.TempDir(), t.TempDir()
			write(t, filepath.Join(tree, "pkg/a.txt"), c.tree)
			write(t, filepath.Join(series, "patches", name), c.patch)
			write(t, filepath.Join(series, "add/go.mod"), "module x\n")
			write(t, filepath.Join(series, "add/pkg/b/c.txt"), "added\n")
			said, err := exec.Command("./apply", tree, series).CombinedOutput()
			switch c.refused {
			case "", "unchanged":
				want := map[string]string{"": changed, "unchanged": original}[c.refused]
				if got := read(t, filepath.Join(tree, "pkg/a.txt")); err != nil || got != want {
					t.Errorf("%v, %s: the file is %q", err, said, got)
				}
				if got := read(t, filepath.Join(tree, "pkg/b/c.txt")); got != "added\n" {
					t.Errorf("the added file is %q", got)
				}
				if _, err := os.Stat(filepath.Join(tree, "go.mod")); err == nil {
					t.Error("the module's file was copied")
				}
			default:
				if err == nil || !strings.Contains(string(said), c.refused) || !strings.Contains(string(said), "UPGRADING.md") {
					t.Errorf("it says %q, %v", said, err)
				}
			}
		})
	}
}

// A file of ours does not replace one of gVisor's.
func TestAddedFilesReplaceNone(t *testing.T) {
	tree, series := t.TempDir(), t.TempDir()
	write(t, filepath.Join(tree, "pkg/c.txt"), "theirs\n")
	write(t, filepath.Join(series, "patches/0001-none.patch"), patch)
	write(t, filepath.Join(series, "add/pkg/c.txt"), "ours\n")
	said, err := exec.Command("./apply", tree, series).CombinedOutput()
	if err == nil || !strings.Contains(string(said), "add/pkg/c.txt") || read(t, filepath.Join(tree, "pkg/c.txt")) != "theirs\n" {
		t.Errorf("it says %q, %v", said, err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
