package disk

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestSparse(t *testing.T) {
	dir := t.TempDir()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		var want []byte
		f, err := os.Create(filepath.Join(dir, "a"))
		if err != nil {
			t.Fatal(err)
		}
		moved := int64(0)
		s := NewSparse(f)
		s.Moved = func(at int64) { moved = at }
		for range 20 {
			piece := make([]byte, rnd.IntN(300_000))
			if rnd.IntN(2) == 0 {
				for i := range piece {
					piece[i] = byte(rnd.IntN(3))
				}
			}
			if n, err := s.Write(piece); err != nil || n != len(piece) {
				t.Fatal(n, err)
			}
			want = append(want, piece...)
		}
		if err := s.Finish(); err != nil {
			t.Fatal(err)
		}
		check(t, f, want)
		if moved != int64(len(want)) {
			t.Errorf("%d of %d bytes are said to be there", moved, len(want))
		}
		// A part of it, after something else.
		g, err := os.Create(filepath.Join(dir, "b"))
		if err != nil {
			t.Fatal(err)
		}
		from := rnd.IntN(len(want))
		size := rnd.IntN(len(want) - from + 1)
		s = NewSparse(g)
		_, _ = s.Write([]byte("before"))
		if err := s.CopyRange(f, int64(from), int64(size)); err != nil {
			t.Fatal(err)
		}
		if err := s.Finish(); err != nil {
			t.Fatal(err)
		}
		check(t, g, append([]byte("before"), want[from:from+size]...))
		if err := s.CopyRange(f, int64(from), int64(len(want))+1); err == nil {
			t.Error("it copies more than there is")
		}
		f.Close()
		g.Close()
	}
}

func check(t *testing.T, f *os.File, want []byte) {
	t.Helper()
	got, err := os.ReadFile(f.Name())
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes differ from %d: %v", len(got), len(want), err)
	}
}

func TestHolesAreKept(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 64 << 20
	s := NewSparse(f)
	for range size >> 20 {
		if _, err := s.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Finish(); err != nil {
		t.Fatal(err)
	}
	g, err := os.Create(filepath.Join(dir, "b"))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	s = NewSparse(g)
	if err := s.CopyRange(f, 0, size); err != nil {
		t.Fatal(err)
	}
	if err := s.Finish(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []*os.File{f, g} {
		info, err := file.Stat()
		if err != nil || info.Size() != size || info.Sys().(*syscall.Stat_t).Blocks > 100 {
			t.Errorf("%+v %v", info, err)
		}
	}
}
