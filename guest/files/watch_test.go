package files

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
)

func next(t *testing.T, w *Watcher) Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := w.Next(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestWatchOfAFolderAlone(t *testing.T) {
	f, dir := testFS(), t.TempDir()
	if err := os.Mkdir(dir+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := f.Watch(nil, dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Next(t.Context(), time.Millisecond); err != ErrIdle {
		t.Errorf("got %v", err)
	}
	write(t, dir+"/sub/unseen", "x")
	if _, err := f.Write(nil, dir+"/file", strings.NewReader("x"), WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{EventCreate, EventWrite} { // and no event about how it was written
		if e := next(t, w); e != (Event{kind, dir + "/file", "file"}) {
			t.Errorf("got %+v, want %s", e, kind)
		}
	}
	write(t, dir+"/bad\xff", "")
	if e := next(t, w); e.Name != `bad\xff` || e.Type != EventCreate {
		t.Errorf("got %+v", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for {
		if _, err := w.Next(ctx, 0); err == context.Canceled {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// A file created in a new folder between setting its watch and listing it is found by both, and must be
// reported once.
func TestWatchReportsANewFileInANewFolderOnce(t *testing.T) {
	f, dir := testFS(), t.TempDir()
	w, err := f.Watch(nil, dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ahead := func(name string) {
		t.Helper()
		if err := os.Mkdir(dir+"/"+name, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.InotifyAddWatch(w.fd, dir+"/"+name, watchMask); err != nil {
			t.Fatal(err)
		}
	}
	ahead("new")
	ahead("new/sub")
	write(t, dir+"/new/file", "x")
	if _, err := f.Write(nil, dir+"/new/sub/moved", strings.NewReader("x"), WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/new/again", "")
	if err := os.Remove(dir + "/new/again"); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/new/again", "")
	write(t, dir+"/new/"+tempPrefix+"half", "x")
	seen := drain(t, w)
	for name, want := range map[string]int{"new": 1, "new/sub": 1, "new/file": 1, "new/sub/moved": 1, "new/again": 2} {
		if seen[name] != want {
			t.Errorf("%s was created %d times, want %d", name, seen[name], want)
		}
	}
	if len(seen) != 5 {
		t.Errorf("saw %v", seen)
	}
	// A later replacement is reported again.
	write(t, dir+"/other", "y")
	if err := os.Rename(dir+"/other", dir+"/new/file"); err != nil {
		t.Fatal(err)
	}
	if seen := drain(t, w); seen["new/file"] != 1 {
		t.Errorf("after the replacing: %v", seen)
	}
}

// drain counts which names were created, until nothing more happens.
func drain(t *testing.T, w *Watcher) map[string]int {
	t.Helper()
	seen := make(map[string]int)
	for {
		e, err := w.Next(t.Context(), 200*time.Millisecond)
		if err == ErrIdle {
			return seen
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == EventCreate {
			seen[e.Name]++
		}
	}
}

func TestWatchEndsWithItsFolder(t *testing.T) {
	f, dir := testFS(), t.TempDir()+"/watched"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := f.Watch(nil, dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := w.Next(t.Context(), 0); err != nil {
			wantCode(t, err, bothy.CodeFileNotFound)
			break
		}
	}
	_, err = f.Watch(nil, dir, false)
	wantCode(t, err, bothy.CodeFileNotFound)
	_, err = f.Watch(nil, "/etc/passwd", false)
	wantCode(t, err, bothy.CodeNotADirectory)
}

func TestWatchOfAClosedFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	f, dir := testFS(), t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := f.Watch(stranger, dir, true)
	wantCode(t, err, bothy.CodePermission)
}

func FuzzWatchParse(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 'a', 0, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		w := &Watcher{root: "/", fd: -1, folders: map[int]string{1: ""}}
		w.parse(b)
		for _, e := range w.pending {
			if e.Type == "" {
				t.Errorf("event %+v", e)
			}
		}
	})
}
