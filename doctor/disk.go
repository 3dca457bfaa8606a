package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy/internal/disk"
	"golang.org/x/sys/unix"
)

// The free space that templates and sandboxes need.
const (
	leastDiskMB = 1 << 10
	goodDiskMB  = 8 << 10
)

func (h *Host) checkDisk(context.Context) Result {
	dir := existing(h.Home)
	bytes, err := disk.Free(dir)
	if err != nil {
		return fail(fmt.Sprintf("The disk of %s cannot be read: %v.", h.Home, err), "Set BOTHY_HOME to a folder on a local disk.")
	}
	if err := unlinkedFile(dir); err != nil {
		return fail(fmt.Sprintf("An unnamed file cannot be made in %s: %v.", dir, err),
			"Set BOTHY_HOME to a folder that you can write, on ext4, xfs, btrfs or tmpfs.")
	}
	free := bytes >> 20
	detail := fmt.Sprintf("%d MiB are free in %s.", free, dir)
	switch {
	case free < leastDiskMB:
		return fail(detail, "Free some space, or set BOTHY_HOME to a folder on a larger disk.")
	case free < goodDiskMB:
		return warn(detail, "Templates take about 1 GiB each; free some space, or set BOTHY_HOME to a larger disk.")
	}
	return ok(detail)
}

// existing returns the deepest existing folder of path.
func existing(path string) string {
	for path != "/" && path != "." {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return path
		}
		path = filepath.Dir(path)
	}
	return path
}

// unlinkedFile makes a file without a name, as sandboxes use for their disks.
func unlinkedFile(dir string) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
