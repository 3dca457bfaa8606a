package files

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMetadata(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Fsetxattr(int(file.Fd()), "user.other", []byte("kept"), 0); errors.Is(err, unix.ENOTSUP) {
		t.Skip("this file system keeps no attributes")
	}
	if m := Metadata(path); m != nil {
		t.Errorf("a new file has %v", m)
	}
	for _, m := range []map[string]string{{"Kind": "a", "b": ""}, {"c": "d"}} {
		if err := setMetadata(file, m); err != nil {
			t.Fatal(err)
		}
	}
	if m := Metadata(path); !maps.Equal(m, map[string]string{"c": "d"}) {
		t.Errorf("it has %v", m)
	}
	if err := setMetadata(file, nil); err != nil || Metadata(path) != nil {
		t.Errorf("%v: it still has %v", err, Metadata(path))
	}
	value := make([]byte, 10)
	if n, err := unix.Getxattr(path, "user.other", value); err != nil || string(value[:n]) != "kept" {
		t.Errorf("another attribute: %q, %v", value[:n], err)
	}
	if err := setMetadata(file, map[string]string{"large": string(make([]byte, 1<<20))}); err == nil {
		t.Error("what cannot be kept is accepted")
	}
}
