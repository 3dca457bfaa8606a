package template

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/store"
	"golang.org/x/sys/unix"
)

// changes writes a tar of changed files as an engine does, and returns its path.
func changes(t *testing.T, headers ...tar.Header) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "files.tar")
	f, err := os.Create(path)
	must(t, err)
	w := tar.NewWriter(f)
	for _, h := range headers {
		must(t, w.WriteHeader(&h))
	}
	must(t, w.Close())
	must(t, f.Close())
	return path
}

func TestTheSameChangesMakeTheSameImage(t *testing.T) {
	l := library(t, Options{}, "tools")
	base, err := l.Lookup("tools")
	must(t, err)
	tar := changes(t, tar.Header{Typeflag: tar.TypeDir, Name: "./opt", Mode: 0o755}, tar.Header{Typeflag: tar.TypeChar, Name: "./bin/sh"})
	var digests []string
	for _, name := range []string{"one", "team/two:v2"} {
		made := &store.Template{Template: bothy.Template{Version: bothy.ManifestVersion, Name: name}}
		must(t, l.Capture(project(t, "red"), made, base, tar))
		digests = append(digests, made.Digest)
		dir := unpackImageFile(t, made.RootFS)
		if _, err := os.Lstat(filepath.Join(dir, "bin/sh")); !os.IsNotExist(err) {
			t.Errorf("the deleted file exists: %v", err)
		}
		if _, err := os.Lstat(filepath.Join(dir, "opt")); err != nil {
			t.Error(err)
		}
	}
	if digests[0] != digests[1] || digests[0] == base.Digest {
		t.Errorf("the digests are %v, of %s", digests, base.Digest)
	}
}

func TestACaptureThatFailsLeavesNothing(t *testing.T) {
	l := library(t, Options{}, "tools")
	base, err := l.Lookup("tools")
	must(t, err)
	broken := filepath.Join(t.TempDir(), "broken.tar")
	must(t, os.WriteFile(broken, []byte("no tar, though longer than nothing at all"), 0o600))
	made := &store.Template{Template: bothy.Template{Version: bothy.ManifestVersion, Name: "app"}}
	fails(t, l.Capture(project(t, "red"), made, base, broken), bothy.CodeTemplateInvalid, "app")
	full := failpoint.Set("template.capture", func() error { return unix.ENOSPC })
	fails(t, l.Capture(project(t, "red"), made, base, changes(t)), bothy.CodeDiskFull, "no room")
	full()
	l.opts.MinFreeDisk = 1 << 60
	fails(t, l.Capture(project(t, "red"), made, base, changes(t)), bothy.CodeDiskFull, "no room")
	if left, err := os.ReadDir(filepath.Join(l.dir, ".build")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	_, err = l.LookupFor(t.Context(), "red", "app")
	fails(t, err, bothy.CodeTemplateNotFound)
}
