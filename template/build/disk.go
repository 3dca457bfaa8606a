package build

import (
	"errors"
	"io"

	"github.com/bothy-dev/bothy"
	"golang.org/x/sys/unix"
)

// lookEvery is how much is written between two looks at the host's disk.
const lookEvery = 64 << 20

// roomy writes to a file of the host as long as the disk has room for more than that: what
// others send must not take from sandboxes what they live on.
type roomy struct {
	io.Writer
	b     *Builder
	dir   string
	since int64
}

func (r *roomy) Write(p []byte) (int, error) {
	if r.since -= int64(len(p)); r.since < 0 {
		if err := r.b.room(r.dir); err != nil {
			return 0, err
		}
		r.since = lookEvery
	}
	return r.Writer.Write(p)
}

// room fails where the disk of a folder has less free than builds leave.
func (b *Builder) room(dir string) error {
	if b.o.MinFreeDisk == 0 {
		return nil
	}
	free, err := b.free(dir)
	if err == nil && free < b.o.MinFreeDisk {
		err = errNoRoom
	}
	return err
}

var errNoRoom = bothy.Errorf(bothy.CodeDiskFull, "the host's disk has no room for what the build makes").
	WithHint("Delete templates and snapshots that are not needed, or ask the operator for space.")

// diskFull names the cause of a failure where it is the host's disk.
func diskFull(err error) error {
	if errors.Is(err, errNoRoom) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		e := *errNoRoom
		return e.Because(err)
	}
	return err
}
