package sqlite_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// A damaged page is found even if it is never read otherwise.
func TestDamageIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.db")
	s := open(t, path)
	for range 200 {
		if err := s.AddEvent(t.Context(), &bothy.Event{Time: time.Now(), Data: map[string]string{"x": strings.Repeat("x", 3000)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Check(t.Context()); err != nil {
		t.Fatalf("a sound database: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, page), (info.Size()/page-20)*page); err != nil {
		t.Fatal(err)
	}
	f.Close()
	s = open(t, path)
	defer s.Close()
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged one: %v", err)
	}
}
