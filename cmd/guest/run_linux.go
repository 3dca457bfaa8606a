package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxRunFiles limits what is copied to /run. Its bytes are limited by that file system.
const maxRunFiles = 10_000

// fillRun copies what the image has in dir, which is /run, to the file system in memory that is
// mounted over it.
func fillRun(dir string) error {
	const image = ".bothy-image"
	at := filepath.Join(dir, image)
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	defer os.Remove(at)
	if err := unix.Mount("/", at, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	defer unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	from := filepath.Join(at, dir)
	var below, above unix.Stat_t
	if unix.Lstat(from, &below) != nil || below.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	if unix.Lstat(dir, &above) == nil && above.Dev == below.Dev && above.Ino == below.Ino {
		return nil // nothing is mounted over it
	}
	c := &copier{left: maxRunFiles, skip: map[string]bool{from + "/bothy": true, from + "/.bothy-boot-id": true, from + "/" + image: true}}
	return c.folder(from, dir)
}

// copier copies a tree of files that nobody changes meanwhile.
type copier struct {
	left int
	skip map[string]bool
}

func (c *copier) folder(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if c.skip[source] {
			continue
		}
		if c.left--; c.left < 0 {
			return errors.Join(append(errs, errors.New("the image has too many files there"))...)
		}
		if err := c.one(source, target); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (c *copier) one(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return err
	}
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if err = os.Mkdir(to, 0o700); err == nil {
			err = c.folder(from, to)
		}
	case unix.S_IFREG:
		err = copyFile(from, to)
	case unix.S_IFLNK:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	case unix.S_IFIFO:
		err = unix.Mkfifo(to, 0o600)
	default:
		return nil
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = os.Lchown(to, int(st.Uid), int(st.Gid))
	}
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFLNK {
		err = unix.Chmod(to, st.Mode&0o7777) // after chown, which clears bits
	}
	if err == nil {
		err = unix.UtimesNanoAt(unix.AT_FDCWD, to, []unix.Timespec{st.Mtim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
	}
	return err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
