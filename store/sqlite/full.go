package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/bothy-dev/bothy"
)

// fullBelow is the room in bytes below which a disk counts as full.
const fullBelow = 1 << 20

// fault is the caller's error for a failed change: that the disk is full, if it is.
func (s *Store) fault(op string, err error) error {
	if err == nil {
		return nil
	}
	wrapped := fmt.Errorf("store: %s: %w", op, err)
	if !isFull(err, filepath.Dir(s.path)) {
		return wrapped
	}
	return bothy.Errorf(bothy.CodeDiskFull, "the server's disk is full, so nothing can be stored").
		WithHint("Delete sandboxes and snapshots that are not needed, or have the operator make room under the server's state.").Because(wrapped)
}

// isFull reports whether an error of SQLite means that there is no room in a folder.
// SQLite does not report every file that it cannot extend as a full disk.
func isFull(err error, dir string) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return true
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		var disk unix.Statfs_t
		return unix.Statfs(dir, &disk) == nil && disk.Bavail*uint64(disk.Bsize) < fullBelow
	}
	return false
}

// mappedPage is the unit in which SQLite takes the room for the file that it maps into
// memory, by writing the last byte of each.
const mappedPage = 4096

// roomToMap refuses a full disk whose blocks are smaller than such a page: the rest of
// the page then has no block, and touching it would end the process by SIGBUS.
func roomToMap(dir string, statfs func(string, *unix.Statfs_t) error) error {
	var disk unix.Statfs_t
	if statfs(dir, &disk) != nil || disk.Bsize >= mappedPage || disk.Bavail*uint64(disk.Bsize) >= fullBelow {
		return nil // what is wrong with the folder is found when the file is made
	}
	return bothy.Errorf(bothy.CodeDiskFull, "the disk under %s is full, and its file system has blocks of %d bytes, on which the database cannot be opened without room", dir, disk.Bsize).
		WithHint("Make 1 MB of room; or keep the state on a file system with blocks of %d bytes or more.", mappedPage)
}
