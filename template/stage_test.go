package template

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// stage stores a base with some files for a build, and empties the build's root again.
func stage(t *testing.T, b *build, d *debianBase) string {
	t.Helper()
	path, err := b.stagePath(d)
	must(t, err)
	must(t, b.root.write("/etc/os-release", "PRETTY_NAME=\"Test 1\"\n", 0o644))
	must(t, b.root.write("/usr/bin/tool", "tool", 0o755|os.ModeSetuid))
	must(t, b.root.mkdir("/srv/data", 0o755, 33))
	must(t, b.keepStage(t.Context(), path))
	must(t, b.root.empty("/"))
	return path
}

func newTestBuild(t *testing.T) *build {
	t.Helper()
	b, err := NewLibrary(t.TempDir(), Options{}).newBuild(bothy.TemplateRef{Name: "tools"}, func(bothy.BuildEvent) {})
	must(t, err)
	t.Cleanup(b.cleanUp)
	return b
}

func TestAKeptBaseIsUsedAgain(t *testing.T) {
	b, d := newTestBuild(t), &debianBase{Suite: "bookworm", Packages: []string{"sudo"}}
	stage(t, b, d)
	must(t, b.debian(t.Context(), d))
	has(t, b.root.dir, "usr/bin/tool", "tool")
	if info, err := os.Stat(filepath.Join(b.root.dir, "usr/bin/tool")); err != nil || info.Mode() != os.ModeSetuid|0o755 {
		t.Errorf("tool: %v, %v", info.Mode(), err)
	}
	if got := owner(t, filepath.Join(b.root.dir, "srv/data")); got != 33 {
		t.Errorf("/srv/data belongs to %d", got)
	}
	if b.t.Packages["os"] != "Test 1" || b.t.Source != "debian:bookworm" {
		t.Errorf("manifest %+v", b.t)
	}
}

func TestAKeptBaseIsForItsOwnPackages(t *testing.T) {
	b := newTestBuild(t)
	one, err := b.stagePath(&debianBase{Suite: "bookworm", Packages: []string{"sudo"}})
	must(t, err)
	two, err := b.stagePath(&debianBase{Suite: "bookworm", Packages: []string{"sudo", "git"}})
	must(t, err)
	if one == two {
		t.Error("two bases share a file")
	}
}

func TestAnOldBaseIsNotUsed(t *testing.T) {
	b, d := newTestBuild(t), &debianBase{Suite: "bookworm"}
	path := stage(t, b, d)
	old := time.Now().Add(-stageLife - time.Minute)
	must(t, os.Chtimes(path, old, old))
	used, err := b.fromStage(t.Context(), path)
	if err != nil || used {
		t.Errorf("used %v, %v", used, err)
	}
	must(t, dropOldStages(filepath.Dir(path)))
	if _, err := os.Stat(path); err == nil {
		t.Error("the old base is still there")
	}
}
