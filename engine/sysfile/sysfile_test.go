package sysfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy/engine/sysfile"
)

func TestReadReturnsAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, size := range []int{0, 1, 1023, 1024, 1025, 100_000} {
		text := strings.Repeat("x", size)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := sysfile.Read(path); err != nil || got != text {
			t.Errorf("of %d bytes it reads %d, %v", size, len(got), err)
		}
	}
}

func TestWriteReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := sysfile.Write(path, "text"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it creates files: %v", err)
	}
	if err := os.WriteFile(path, []byte("a longer text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sysfile.Write(path, "text"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "text" {
		t.Errorf("it wrote %q, %v", got, err)
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	_, err := sysfile.Read(missing)
	var named *fs.PathError
	if !errors.As(err, &named) || named.Path != missing || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file is %v", err)
	}
	if _, err := sysfile.Read(t.TempDir()); !errors.As(err, &named) || named.Op != "read" {
		t.Errorf("a folder is %v", err)
	}
}
