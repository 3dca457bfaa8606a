package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Readers see the old or the new text, and no temporary file is left.
func TestReadersSeeWholeFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	text := func(b byte) string { return strings.Repeat(string(b), 1<<16) }
	must(t, Write(path, []byte(text('a')), 0o640))
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for i := range 50 {
			if err := Write(path, []byte(text("ab"[i%2])), 0o640); err != nil {
				t.Error(err)
			}
		}
	})
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		got, err := os.ReadFile(path)
		must(t, err)
		if s := string(got); s != text('a') && s != text('b') {
			t.Fatalf("%d bytes", len(s))
		}
	}
	wg.Wait()
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o640 {
		t.Error(info.Mode())
	}
	alone(t, dir)
}

func TestOneOfManyCreates(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	var wg sync.WaitGroup
	won := make(chan string, 8)
	for _, who := range strings.Split("abcdefgh", "") {
		wg.Go(func() {
			switch err := Create(path, []byte(who), 0o600); {
			case err == nil:
				won <- who
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := os.ReadFile(path)
	must(t, err)
	if len(won) != 1 || string(got) != <-won {
		t.Errorf("%q is there", got)
	}
	alone(t, dir)
}

func TestAFileThatCannotBePutLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "folder")
	must(t, os.MkdirAll(filepath.Join(path, "full"), 0o700))
	if err := Write(path, nil, 0o600); err == nil {
		t.Error("a folder was replaced")
	}
	alone(t, dir)
	if err := Write(filepath.Join(dir, "missing", "file"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func alone(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("%v are there", entries)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
