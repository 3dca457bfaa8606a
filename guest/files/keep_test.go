package files

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
)

// shared is a world-writable folder with files of root, and a folder that only root may write.
func shared(t *testing.T) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir, err := os.MkdirTemp("", "keep") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func put(t *testing.T, path string, mode os.FileMode, uid int) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte("a longer content"), 0o600), os.Chown(path, uid, uid), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func status(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t)
}

func TestWriteKeepsOwnerModeAndLinks(t *testing.T) {
	f, dir := testFS(), shared(t)
	path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	put(t, path, 0o4666, 0)
	if err := os.Link(path, other); err != nil {
		t.Fatal(err)
	}
	info, err := f.Write(stranger, path, strings.NewReader("new"), WriteOptions{})
	if err != nil || info.UID != 0 || info.Size != 3 || content(t, other) != "new" {
		t.Errorf("%+v, %v, %q", info, err, content(t, other))
	}
	// The kernel clears bits that would give the writer the owner's rights.
	if st := status(t, path); st.Mode&0o7777 != 0o666 || st.Nlink != 2 || st.Uid != 0 {
		t.Errorf("%+v", st)
	}
	if _, err := f.Write(stranger, path, strings.NewReader("x"), WriteOptions{Mode: 0o600}); bothy.ErrorCode(err) != bothy.CodePermission || content(t, path) != "new" {
		t.Errorf("another's mode was set: %v, %q", err, content(t, path))
	}
	// Writes of root keep the owner too.
	mine := filepath.Join(dir, "mine")
	put(t, mine, 0o640, 4321)
	if info, err := f.Write(nil, mine, strings.NewReader("by root"), WriteOptions{}); err != nil || info.UID != 4321 || Bits(info.Mode) != 0o640 {
		t.Errorf("%+v, %v", info, err)
	}
	// A user's own file is replaced only if that was asked for.
	before := status(t, mine).Ino
	if _, err := f.Write(stranger, mine, strings.NewReader("x"), WriteOptions{}); err != nil || status(t, mine).Ino != before {
		t.Errorf("it was replaced: %v", err)
	}
	if _, err := f.Write(stranger, mine, strings.NewReader("x"), WriteOptions{Atomic: true}); err != nil || status(t, mine).Ino == before {
		t.Errorf("it was written over: %v", err)
	}
}

func TestWriteRefusesWhatTheUserMayNotWrite(t *testing.T) {
	f, dir := testFS(), shared(t)
	for name, file := range map[string]struct {
		mode os.FileMode
		uid  int
	}{"read-only": {0o444, 4321}, "of root's": {0o644, 0}} {
		path := filepath.Join(dir, name)
		put(t, path, file.mode, file.uid)
		_, err := f.Write(stranger, path, strings.NewReader("x"), WriteOptions{})
		wantCode(t, err, bothy.CodePermission)
		if content(t, path) != "a longer content" {
			t.Errorf("%s was changed", name)
		}
		info, err := f.Write(stranger, path, strings.NewReader("x"), WriteOptions{Atomic: true})
		if err != nil || info.UID != 4321 || content(t, path) != "x" {
			t.Errorf("%s: atomic: %+v, %v", name, info, err)
		}
	}
	// A user's own file in another's folder can be written.
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(closed, "own")
	put(t, path, 0o644, 4321)
	if _, err := f.Write(stranger, path, strings.NewReader("x"), WriteOptions{}); err != nil || content(t, path) != "x" {
		t.Errorf("%v, %q", err, content(t, path))
	}
	// Nor does an interrupted write change a file that is overwritten in place.
	_, err := f.Write(stranger, path, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(syscall.ECONNRESET)), WriteOptions{})
	if err == nil || content(t, path) != "x" {
		t.Errorf("%v, %q", err, content(t, path))
	}
	for _, d := range []string{dir, closed} {
		left, err := filepath.Glob(filepath.Join(d, tempPrefix+"*"))
		if err != nil || len(left) > 0 {
			t.Errorf("%v, %v", left, err)
		}
	}
}

// A program that watches a folder, or has a file open, sees a write as that of an editor.
func TestWriteInPlaceIsSeenByWatchers(t *testing.T) {
	f, dir := testFS(), t.TempDir()
	path := filepath.Join(dir, "file")
	write(t, path, "old")
	open, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_ALL_EVENTS&^(unix.IN_ACCESS|unix.IN_OPEN|unix.IN_CLOSE_NOWRITE)); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("line\n", bufferSize)
	for _, c := range []struct{ name, content string }{
		{"file", "new content"}, {"file", large}, {"file", "short"}, {"new", "x"}, {"new2", large},
	} {
		if _, err := f.Write(nil, filepath.Join(dir, c.name), strings.NewReader(c.content), WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := content(t, filepath.Join(dir, c.name)); got != c.content {
			t.Errorf("%s holds %d bytes instead of %d", c.name, len(got), len(c.content))
		}
		buf := make([]byte, 64<<10)
		n, err := unix.Read(fd, buf)
		if err != nil {
			t.Fatal(err)
		}
		var seen uint32
		for b := buf[:n]; len(b) > 0; {
			mask, size := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[12:])
			if name := strings.TrimRight(string(b[16:16+size]), "\x00"); name != c.name {
				t.Errorf("while %s was written, %q was seen", c.name, name)
			}
			seen |= mask
			b = b[16+size:]
		}
		if seen&(unix.IN_MODIFY|unix.IN_CLOSE_WRITE) != unix.IN_MODIFY|unix.IN_CLOSE_WRITE || seen&unix.IN_MOVE != 0 {
			t.Errorf("%s: events %#x", c.name, seen)
		}
		if b, err := io.ReadAll(open); c.content == "new content" && (err != nil || string(b) != c.content) {
			t.Errorf("who has the file open reads %q, %v", b, err)
		}
	}
	// New content that does not arrive leaves neither a file nor a change.
	for _, name := range []string{"file", "newer"} {
		broken := io.MultiReader(strings.NewReader(large), iotest.ErrReader(syscall.ECONNRESET))
		if _, err := f.Write(nil, filepath.Join(dir, name), broken, WriteOptions{}); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "newer")); err == nil || content(t, path) != "short" {
		t.Errorf("half a file: %v, %.20q", err, content(t, path))
	}
}
