package engine

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/bothy-dev/bothy"
)

func TestFilesTarIsWhatWasWritten(t *testing.T) {
	whole := make([]byte, 5<<20)
	copy(whole[100:], "a header")
	copy(whole[3<<20:], "in the midst")
	whole[len(whole)-1] = 1
	for _, step := range []int{1000, tarBlock, 3*tarBlock + 1, len(whole)} {
		path := filepath.Join(t.TempDir(), "files.tar")
		f, err := CreateFilesTar(path, bothy.Limits{DiskMB: 64, MemoryMB: 64})
		if err != nil {
			t.Fatal(err)
		}
		for rest := whole; len(rest) > 0; rest = rest[min(step, len(rest)):] {
			if _, err := f.Write(rest[:min(step, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, whole) {
			t.Errorf("in steps of %d bytes it differs: %d bytes, %v", step, len(got), err)
		}
		if used := onDisk(t, path); used > 4*tarBlock {
			t.Errorf("in steps of %d bytes it takes %d bytes on disk", step, used)
		}
	}
}

// Endless holes neither fill the disk nor keep the reader busy forever.
func TestFilesTarHasAnEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "files.tar")
	l := bothy.Limits{DiskMB: 64, MemoryMB: 64}
	f, err := CreateFilesTar(path, l)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zeros := make([]byte, 1<<20)
	var wrote int64
	for err == nil {
		if wrote > 2*MostFilesTar(l) {
			t.Fatal("it does not end")
		}
		_, err = f.Write(zeros)
		wrote += int64(len(zeros))
	}
	if e := bothy.AsError(err); e.Code != bothy.CodeUnsupported || e.Hint == "" || wrote-int64(len(zeros)) != MostFilesTar(l) {
		t.Errorf("after %d bytes: %v", wrote, err)
	}
	if used := onDisk(t, path); used > tarBlock {
		t.Errorf("it takes %d bytes on disk", used)
	}
}

func onDisk(t *testing.T, path string) int64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}
