package gvisor_test

import (
	"archive/tar"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/bothy-dev/bothy"
)

// TestFilesThatDoNotFit starts a machine from more files than its memory allows, and one from as many as
// fit.
func TestFilesThatDoNotFit(t *testing.T) {
	dir, parent := newPlace(t)
	e := newEngine(t, dir, parent)
	for files, code := range map[int]bothy.Code{40_000: bothy.CodeDiskFull, 10_000: ""} {
		s := spec("full")
		s.FilesTar = filepath.Join(t.TempDir(), "files.tar")
		writeFiles(t, s.FilesTar, files)
		m, err := e.Start(t.Context(), s)
		if err == nil {
			m.Destroy(context.Background())
		}
		if (err == nil) != (code == "") || err != nil && (bothy.ErrorCode(err) != code || bothy.AsError(err).Hint == "") {
			t.Errorf("%d files: %v", files, err)
		}
	}
	nothingLeft(t, e)
}

func writeFiles(t *testing.T, path string, n int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	write := func(h tar.Header) {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	write(tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755})
	for i := range n {
		write(tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("./f%d", i), Mode: 0o644})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
