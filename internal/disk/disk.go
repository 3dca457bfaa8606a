// Package disk reports how much space a disk of the host has, and reads and writes sparse files.
package disk

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Free returns how many bytes users other than root may still write to a folder.
func Free(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return int64(fs.Bavail) * int64(fs.Bsize), nil
}

// ErrNoRoom means that a disk has less free space than must remain free.
var ErrNoRoom = errors.New("the host's disk has no room for more")

// A Guard receives what is written to a disk of the host, as a second writer, and fails while
// that has too little free space: uploads must not take the space that sandboxes need.
type Guard struct {
	Dir string
	// Min is how many bytes must stay free; 0 means no limit.
	Min int64
	// Free is the function Free, unless tests replace it.
	Free  func(dir string) (int64, error)
	since int64
}

// lookEvery is how much is written between two checks of the disk.
const lookEvery = 64 << 20

// Write implements io.Writer. It keeps nothing.
func (g *Guard) Write(p []byte) (int, error) {
	if g.since -= int64(len(p)); g.since < 0 {
		if err := g.Look(); err != nil {
			return 0, err
		}
		g.since = lookEvery
	}
	return len(p), nil
}

// Look returns ErrNoRoom while the disk has too little free space.
func (g *Guard) Look() error {
	if g.Min == 0 {
		return nil
	}
	look := g.Free
	if look == nil {
		look = Free
	}
	free, err := look(g.Dir)
	if err == nil && free < g.Min {
		err = ErrNoRoom
	}
	return err
}
