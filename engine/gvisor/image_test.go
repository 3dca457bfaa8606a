package gvisor

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
)

// The file has the final content, however much of what was written ahead is written again.
func TestWhatWasWrittenAheadIsCutOff(t *testing.T) {
	const ahead = worthAhead + aheadStep
	content := make([]byte, ahead+3*pageSize)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(content)
	for _, size := range []int{0, pageSize, 7 * pageSize, ahead/2 + pageSize, ahead - pageSize, ahead, ahead + 3*pageSize} {
		dir := t.TempDir()
		i := &image{}
		if err := i.create(dir); err != nil {
			t.Fatal(err)
		}
		i.writeAhead(ahead + aheadStep/2)
		if i.ahead != ahead {
			t.Fatalf("%d bytes were written ahead, want %d", i.ahead, ahead)
		}
		if _, err := i.pages.WriteAt(content[:size], 0); err != nil {
			t.Fatal(err)
		}
		if err := i.cut(); err != nil {
			t.Fatal(err)
		}
		i.close()
		got, err := os.ReadFile(filepath.Join(dir, checkpointfiles.PagesFileName))
		if err != nil || !bytes.Equal(got, content[:size]) {
			t.Errorf("of %d bytes there are %d, equal: %v, %v", size, len(got), bytes.Equal(got, content[:min(size, len(got))]), err)
		}
		os.RemoveAll(dir)
	}
}

func TestLittleMemoryIsNotWrittenAhead(t *testing.T) {
	i := &image{}
	if err := i.create(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	defer i.close()
	i.writeAhead(worthAhead - 1)
	if n, err := i.pages.Seek(0, io.SeekEnd); n != 0 || err != nil {
		t.Errorf("there are %d bytes, %v", n, err)
	}
	if err := i.cut(); err != nil {
		t.Error(err)
	}
}

// Writing ahead ignores a full disk; the final write reports it.
func TestDiskWithoutRoomForWhatIsWrittenAhead(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	i := &image{files: []*os.File{full}, pages: full}
	defer i.close()
	i.writeAhead(2 * worthAhead)
	if i.ahead != 0 {
		t.Errorf("%d bytes are counted as written", i.ahead)
	}
	if err := i.cut(); err != nil {
		t.Error(err)
	}
}
