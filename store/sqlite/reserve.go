package sqlite

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
)

const (
	// reserveBytes is how much space is kept for changes that must succeed on a full disk. Such
	// a change needs some tens of kilobytes at most.
	reserveBytes = 4 << 20
	// reserveStep is how much of it is released at once: what others take of that is lost.
	reserveStep = 128 << 10
)

// reserve is a file beside the database that only occupies space. The Store's write lock guards
// it.
type reserve struct {
	file *os.File // nil without one
	size int64
}

// reservePath is the file with the reserve of a database.
func reservePath(path string) string { return strings.TrimSuffix(path, ".db") + "-reserve" }

// open fills the reserve as far as there is space. A server without one works until its disk is
// full.
func (r *reserve) open(path string) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		f.Close()
		return
	}
	r.file, r.size = f, info.Size()
	r.fill()
}

// fill takes space until the reserve is complete or the disk full.
func (r *reserve) fill() {
	for r.file != nil && r.size < reserveBytes {
		step := min(reserveStep, reserveBytes-r.size)
		if unix.Fallocate(int(r.file.Fd()), 0, r.size, step) != nil {
			return
		}
		r.size += step
	}
}

// release returns a step of the reserve to the disk. It reports false if nothing is left.
func (r *reserve) release() bool {
	if r.file == nil || r.size == 0 {
		return false
	}
	r.size = max(0, r.size-reserveStep)
	return r.file.Truncate(r.size) == nil
}

func (r *reserve) close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// withReserve makes a change, and repeats it with the reserve's space while the disk is full. It
// is for changes that take away a right, free space or record an end: refusing them because of a
// full disk would make matters worse. The caller holds the write lock.
func (s *Store) withReserve(change func() error) error {
	err := change()
	for bothy.ErrorCode(err) == bothy.CodeDiskFull && s.reserve.release() {
		err = change()
	}
	s.reserve.fill()
	return err
}
