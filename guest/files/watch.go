package files

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
)

const (
	// maxWatched bounds the folders that one watcher follows.
	maxWatched = 8192
	// maxPending bounds the events that wait to be taken from one read.
	maxPending = 4096

	watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK
)

// The types of events. Overflow means that some were missed.
const (
	EventCreate   = "create"
	EventWrite    = "write"
	EventRemove   = "remove"
	EventRename   = "rename"
	EventChmod    = "chmod"
	EventOverflow = "overflow"
)

// Event is one change. Name is the path below the watched folder.
type Event struct {
	Type, Path, Name string
}

// ErrIdle is returned by Watcher.Next when nothing happened for a while.
var ErrIdle = errors.New("nothing happened")

// Watcher follows the changes in a folder. It is for one goroutine.
type Watcher struct {
	f         *FS
	user      *account.User
	root      string
	recursive bool
	notify    *os.File
	fd        int
	folders   map[int]string // watch descriptor to path below root, "" for root
	// written is the kernel's cookie of the last rename of a file that we
	// wrote: for a watcher it appears as written at its new name.
	written uint32
	pending []Event
	// reported has the entries found in new folders. The kernel reports some of them as well: those
	// created between adding the watch and listing the folder, so among its events up to
	// reportedUntil. Like parsed and taken, that counts the bytes of events from the start.
	reported                     map[string]bool
	reportedUntil, parsed, taken int64
	buf                          [4096]byte
	failed                       error
}

// Watch starts to follow a folder and, if recursive is set, all folders below it.
func (f *FS) Watch(u *account.User, path string, recursive bool) (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, pathError(path, err)
	}
	w := &Watcher{
		f: f, user: u, root: path, recursive: recursive, fd: fd,
		notify: os.NewFile(uintptr(fd), "inotify"), folders: make(map[int]string),
	}
	if err := f.as(u, func() error { return w.add("", false) }); err != nil {
		w.Close()
		return nil, pathError(path, err)
	}
	return w, nil
}

// Close ends the watch.
func (w *Watcher) Close() error { return w.notify.Close() }

// add watches a folder and, if requested, those in it. With news it also reports existing
// entries, because they were created before the watch.
func (w *Watcher) add(name string, news bool) error {
	dir := filepath.Join(w.root, name)
	if len(w.folders) >= maxWatched {
		return bothy.Errorf(bothy.CodeTooLarge, "there are more than %d folders below %s", maxWatched, quote(w.root)).
			WithHint("Watch a folder further down.")
	}
	wd, err := unix.InotifyAddWatch(w.fd, dir, watchMask)
	if errors.Is(err, unix.ENOSPC) {
		return bothy.Errorf(bothy.CodeCapacity, "the sandbox cannot watch more folders").Because(err)
	}
	if err != nil {
		return err
	}
	w.folders[wd] = name
	if !w.recursive {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		child := filepath.Join(name, e.Name())
		if news {
			w.reportFound(child)
		}
		if e.IsDir() {
			// Folders that the user may not read, or that are gone, are skipped.
			if err := w.add(child, news); err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// reportFound reports an entry that was found as new.
func (w *Watcher) reportFound(name string) {
	w.push(EventCreate, name)
	if w.reported == nil {
		w.reported = make(map[string]bool)
	}
	w.reported[name] = true
	queued, err := unix.IoctlGetInt(w.fd, unix.TIOCINQ)
	if err != nil {
		queued = 0
	}
	w.reportedUntil = w.taken + int64(queued)
}

// push adds an event unless it repeats the last.
func (w *Watcher) push(kind, name string) {
	e := Event{kind, filepath.Join(w.root, name), name}
	if !utf8.ValidString(name) {
		q := strconv.Quote(name)
		e.Name = q[1 : len(q)-1]
		e.Path = filepath.Join(w.root, e.Name)
	}
	n := len(w.pending)
	switch {
	case n > 0 && w.pending[n-1] == e:
	case n == maxPending:
		w.pending = append(w.pending, Event{EventOverflow, w.root, ""})
	case n < maxPending:
		w.pending = append(w.pending, e)
	}
}

// Next returns the next change. It returns ErrIdle if there is none within
// idle, unless that is 0, and CodeFileNotFound once the folder is gone.
func (w *Watcher) Next(ctx context.Context, idle time.Duration) (Event, error) {
	for len(w.pending) == 0 {
		if w.failed != nil {
			return Event{}, w.failed
		}
		if err := w.read(ctx, idle); err != nil {
			return Event{}, err
		}
	}
	e := w.pending[0]
	w.pending = w.pending[1:]
	return e, nil
}

func (w *Watcher) read(ctx context.Context, idle time.Duration) error {
	var deadline time.Time
	if idle > 0 {
		deadline = time.Now().Add(idle)
	}
	if err := w.notify.SetReadDeadline(deadline); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { w.notify.SetReadDeadline(time.Unix(1, 0)) })
	n, err := w.notify.Read(w.buf[:])
	stop()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrIdle
	case err != nil:
		return err
	}
	w.pending = nil
	w.taken += int64(n)
	return w.f.as(w.user, func() error {
		w.parse(w.buf[:n])
		return nil
	})
}

// parse reads the kernel's events: a header of 16 bytes and a padded name.
func (w *Watcher) parse(b []byte) {
	for len(b) >= unix.SizeofInotifyEvent {
		if w.reported != nil && w.parsed >= w.reportedUntil {
			w.reported = nil
		}
		wd := int(int32(binary.NativeEndian.Uint32(b)))
		mask := binary.NativeEndian.Uint32(b[4:])
		cookie := binary.NativeEndian.Uint32(b[8:])
		size := int(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if size > len(b) {
			return
		}
		name := strings.TrimRight(string(b[:size]), "\x00")
		b = b[size:]
		w.parsed += int64(unix.SizeofInotifyEvent + size)
		if strings.HasPrefix(name, tempPrefix) {
			if mask&unix.IN_MOVED_FROM != 0 {
				w.written = cookie
			}
			continue
		}
		w.handle(wd, mask, name)
		if mask&unix.IN_MOVED_TO != 0 && cookie == w.written && cookie != 0 {
			w.handle(wd, unix.IN_MODIFY, name)
		}
	}
}

func (w *Watcher) handle(wd int, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		w.push(EventOverflow, "")
		return
	}
	folder, ok := w.folders[wd]
	if !ok {
		return
	}
	switch {
	case mask&unix.IN_IGNORED != 0:
		delete(w.folders, wd)
		return
	case mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0:
		if folder == "" {
			w.failed = bothy.Errorf(bothy.CodeFileNotFound, "the watched folder %s is gone", quote(w.root))
		}
		return
	case name == "": // about the folder itself: its parent reports that too
		return
	}
	path := filepath.Join(folder, name)
	told := w.reported[path]
	if mask&(unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_MOVED_FROM) != 0 {
		delete(w.reported, path)
	}
	switch {
	case told && mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		w.push(EventCreate, path)
		if mask&unix.IN_ISDIR != 0 && w.recursive {
			if err := w.add(path, true); err != nil && bothy.ErrorCode(err) == bothy.CodeTooLarge {
				w.failed = err
			}
		}
	case mask&unix.IN_MODIFY != 0:
		w.push(EventWrite, path)
	case mask&unix.IN_DELETE != 0:
		w.push(EventRemove, path)
	case mask&unix.IN_MOVED_FROM != 0:
		w.push(EventRename, path)
		if mask&unix.IN_ISDIR != 0 {
			w.forget(path)
		}
	case mask&unix.IN_ATTRIB != 0:
		w.push(EventChmod, path)
	}
}

// forget stops following a folder that has been renamed, and those in it.
func (w *Watcher) forget(path string) {
	for wd, name := range w.folders {
		if name == path || strings.HasPrefix(name, path+"/") {
			delete(w.folders, wd)
			_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
		}
	}
}
