// Package blobtest is the test suite that every blob store passes.
package blobtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/bothy-dev/bothy/blob"
)

// Run runs the suite. Calling open again with the same dir opens the same store again, as after
// a crash.
func Run(t *testing.T, open func(t *testing.T, dir string) blob.Store) {
	t.Run("A tree is there after Commit and not before", func(t *testing.T) {
		s := open(t, t.TempDir())
		d := fill(t, s, "one", "hello")
		if names, err := s.List(t.Context()); err != nil || len(names) != 0 {
			t.Errorf("before Commit: %v, %v", names, err)
		}
		if _, _, err := s.Open(t.Context(), "one"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a draft can be opened: %v", err)
		}
		commit(t, d)
		if got := read(t, s, "one"); got != "hello" {
			t.Errorf("read %q", got)
		}
		if n, err := s.Size(t.Context(), "one"); err != nil || n != 5 {
			t.Errorf("size %d, %v", n, err)
		}
	})
	t.Run("A draft that was flushed is no tree yet, and takes more files", func(t *testing.T) {
		s := open(t, t.TempDir())
		d := fill(t, s, "one", strings.Repeat("large", 1<<20))
		if err := d.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if names, err := s.List(t.Context()); err != nil || len(names) != 0 {
			t.Errorf("before Commit: %v, %v", names, err)
		}
		if err := os.WriteFile(filepath.Join(d.Dir(), "more"), []byte("and more"), 0o600); err != nil {
			t.Fatal(err)
		}
		commit(t, d)
		if n, err := s.Size(t.Context(), "one"); err != nil || n != 5<<20+8 {
			t.Errorf("size %d, %v", n, err)
		}
	})
	t.Run("A discarded draft and a crash leave nothing", func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir)
		fill(t, s, "one", "x").Discard()
		fill(t, s, "two", "y") // the process ends here
		kept := fill(t, s, "kept", "z")
		commit(t, kept)
		kept.Discard()
		s = open(t, dir)
		if names, err := s.List(t.Context()); err != nil || fmt.Sprint(names) != "[kept]" {
			t.Errorf("left: %v, %v", names, err)
		}
		entries, err := os.ReadDir(dir)
		if err == nil && len(entries) > 1 {
			t.Errorf("files are left: %v", entries)
		}
	})
	t.Run("A name is used once", func(t *testing.T) {
		s := open(t, t.TempDir())
		commit(t, fill(t, s, "one", "first"))
		d := fill(t, s, "one", "second")
		if err := d.Commit(t.Context()); !errors.Is(err, fs.ErrExist) {
			t.Errorf("the name was used again: %v", err)
		}
		d.Discard()
		if got := read(t, s, "one"); got != "first" {
			t.Errorf("read %q", got)
		}
	})
	t.Run("Remove removes and can be repeated", func(t *testing.T) {
		s := open(t, t.TempDir())
		commit(t, fill(t, s, "one", "x"))
		for range 2 {
			if err := s.Remove(t.Context(), "one"); err != nil {
				t.Error(err)
			}
		}
		if _, _, err := s.Open(t.Context(), "one"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("still there: %v", err)
		}
	})
	t.Run("A tree that is removed while it is open can be read to its end", func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir)
		for _, name := range []string{"one", "two"} {
			commit(t, fill(t, s, name, "hello"))
		}
		one, release, err := s.Open(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		again, releaseAgain, err := s.Open(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Open(t.Context(), "two"); err != nil { // and the process ends
			t.Fatal(err)
		}
		for _, name := range []string{"one", "two", "one"} {
			if err := s.Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := s.Open(t.Context(), "one"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it can still be found: %v", err)
		}
		if _, err := s.Size(t.Context(), "one"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it still has a size: %v", err)
		}
		if names, err := s.List(t.Context()); err != nil || len(names) != 0 {
			t.Errorf("it is still listed: %v, %v", names, err)
		}
		release()
		release()
		for _, dir := range []string{one, again} {
			if b, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(b) != "hello" {
				t.Errorf("read %q, %v", b, err)
			}
		}
		releaseAgain()
		if _, err := os.Stat(one); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is still there: %v", err)
		}
		s = open(t, dir)
		if names, err := s.List(t.Context()); err != nil || len(names) != 0 {
			t.Errorf("left: %v, %v", names, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("files are left: %v, %v", entries, err)
		}
	})
	t.Run("Names that climb out are refused", func(t *testing.T) {
		s := open(t, t.TempDir())
		for _, name := range []string{"", ".", "..", "../x", "a/b", ".draft-x", "a\x00"} {
			if _, err := s.Create(t.Context(), name); err == nil {
				t.Errorf("%q was accepted", name)
			}
			if err := s.Remove(t.Context(), name); err == nil {
				t.Errorf("removing %q was accepted", name)
			}
		}
	})
	t.Run("Many at once", func(t *testing.T) {
		s := open(t, t.TempDir())
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				name := fmt.Sprint("t", i)
				d, err := s.Create(t.Context(), name)
				if err == nil {
					err = d.Commit(t.Context())
				}
				if err == nil && i%2 == 0 {
					err = s.Remove(t.Context(), name)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if names, err := s.List(t.Context()); err != nil || len(names) != 8 {
			t.Errorf("left: %v, %v", names, err)
		}
	})
}

func fill(t *testing.T, s blob.Store, name, text string) blob.Draft {
	t.Helper()
	d, err := s.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Dir(), "f"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

func commit(t *testing.T, d blob.Draft) {
	t.Helper()
	if err := d.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, s blob.Store, name string) string {
	t.Helper()
	dir, release, err := s.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	b, err := os.ReadFile(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
