package build

import (
	"errors"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/disk"
	"golang.org/x/sys/unix"
)

// guard watches the free disk space while something is written to a folder. Where there is too
// little, it makes room by deleting what is in the cache.
func (b *Builder) guard(dir string) *disk.Guard {
	return &disk.Guard{Dir: dir, Min: b.o.MinFreeDisk, Free: func(dir string) (int64, error) {
		free, err := b.free(dir)
		if err == nil && free < b.o.MinFreeDisk {
			b.prune(b.o.MinFreeDisk - free)
			free, err = b.free(dir)
		}
		return free, err
	}}
}

var errNoRoom = bothy.Errorf(bothy.CodeDiskFull, "the host's disk has no room for the build").
	WithHint("Delete unneeded templates and snapshots, or ask the operator for disk space.")

// diskFull returns a specific error if the host's disk is full.
func diskFull(err error) error {
	if errors.Is(err, disk.ErrNoRoom) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		e := *errNoRoom
		return e.Because(err)
	}
	return err
}
