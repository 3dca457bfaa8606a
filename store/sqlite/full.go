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

// fullBelow is the free space in bytes below which a disk counts as full.
const fullBelow = 1 << 20

// fault returns the caller's error for a failed change. It says so if the disk is full.
func (s *Store) fault(op string, err error) error {
	if err == nil {
		return nil
	}
	wrapped := fmt.Errorf("store: %s: %w", op, err)
	if !isFull(err, filepath.Dir(s.path)) {
		return wrapped
	}
	return bothy.Errorf(bothy.CodeDiskFull, "the server's disk is full, so nothing can be stored").
		WithHint("Delete unneeded sandboxes and snapshots, or ask the operator for disk space for the server's state.").Because(wrapped)
}

// isFull reports whether an error of SQLite means that a folder's disk is full. SQLite does not
// always report that as such.
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

// mappedPage is the unit in which SQLite extends the file that it maps into memory, by writing
// the last byte of each.
const mappedPage = 4096

// roomToMap returns an error if the disk is full and its blocks are smaller than such a page:
// the rest of a page would then have no block, and touching it would kill the process with
// SIGBUS.
func roomToMap(dir string, statfs func(string, *unix.Statfs_t) error) error {
	var disk unix.Statfs_t
	if statfs(dir, &disk) != nil || disk.Bsize >= mappedPage || disk.Bavail*uint64(disk.Bsize) >= fullBelow {
		return nil // creating the file will report the error
	}
	return bothy.Errorf(bothy.CodeDiskFull, "the disk of %s is full, and on its file system, with blocks of %d bytes, the database needs free space to open", dir, disk.Bsize).
		WithHint("Free 1 MB, or keep the state on a file system with blocks of at least %d bytes.", mappedPage)
}
