package build

import (
	"errors"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/disk"
	"golang.org/x/sys/unix"
)

// guard watches the disk of a folder into which something is written.
func (b *Builder) guard(dir string) *disk.Guard {
	return &disk.Guard{Dir: dir, Min: b.o.MinFreeDisk, Free: b.free}
}

var errNoRoom = bothy.Errorf(bothy.CodeDiskFull, "the host's disk has no room for what the build makes").
	WithHint("Delete templates and snapshots that are not needed, or ask the operator for space.")

// diskFull explains a failure that was caused by the host's full disk.
func diskFull(err error) error {
	if errors.Is(err, disk.ErrNoRoom) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		e := *errNoRoom
		return e.Because(err)
	}
	return err
}
