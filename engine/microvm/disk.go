package microvm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	hostdisk "github.com/bothy-dev/bothy/internal/disk"
)

// layerMB is what a separate file system needs in addition to the quota.
const layerMB = 16

// makeLayer makes the empty writable layer of a machine: a sparse file with a file
// system, whose size is the quota. The file system is made once for each size.
func makeLayer(cache, to string, diskMB int) error {
	blank := filepath.Join(cache, fmt.Sprintf("layer-%d.ext4", diskMB))
	if !isFile(blank) {
		if err := makeBlank(blank, diskMB); err != nil {
			return err
		}
	}
	return copyFile(blank, to)
}

func makeBlank(path string, diskMB int) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = f.Truncate(int64(diskMB+layerMB) << 20)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	// No journal: nothing on it is used after a crash of the host.
	out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal,^resize_inode,^metadata_csum", "-E", "discard,lazy_itable_init=0", "-I", "256", f.Name()).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return bothy.Errorf(bothy.CodeEngineMissing, "mkfs.ext4 is not installed").WithHint("Run: sudo apt-get install e2fsprogs").Because(err)
	}
	if err != nil {
		return fmt.Errorf("make a file system: %w: %s", err, out)
	}
	return os.Rename(f.Name(), path)
}

// copyFile makes a copy that shares blocks with the original if the file system
// supports it, and otherwise keeps the original's holes.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(copySparse(out, in), out.Close())
}

func copySparse(to, from *os.File) error {
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		return nil
	}
	st, err := from.Stat()
	if err != nil {
		return err
	}
	if err := to.Truncate(st.Size()); err != nil {
		return err
	}
	return eachExtent(from, st.Size(), func(start, end int64) error {
		if _, err := to.Seek(start, io.SeekStart); err != nil {
			return err
		}
		_, err := io.Copy(to, io.NewSectionReader(from, start, end-start))
		return err
	})
}

// eachExtent calls fn with each part of a file that is not a hole.
func eachExtent(f *os.File, size int64, fn func(start, end int64) error) error {
	for at := int64(0); ; {
		start, end, err := hostdisk.NextData(f, at, size)
		if err != nil || start == size {
			return err
		}
		if err := fn(start, end); err != nil {
			return err
		}
		at = end
	}
}
