package template

import (
	"io/fs"
)

// files is a root file system that is being finished: a folder of the host (rootfs), or a tree
// in memory.
type files interface {
	// keeps reports whether existing files are intentional and stay unchanged, so that only
	// missing ones are added.
	keeps() bool
	resolve(name string, follow bool) (string, error)
	exists(name string) bool
	read(name string) ([]byte, error)
	write(name, content string, mode fs.FileMode) error
	mkdir(name string, mode fs.FileMode, uid int) error
	chmod(name string, mode fs.FileMode) error
	chown(name string, uid, gid int) error
	chownAll(name string, uid int) error
	list(name string) ([]fs.DirEntry, error)
	empty(name string) error
	remove(names ...string) error
}

func (r *rootfs) keeps() bool { return false }

func (r *rootfs) chmod(name string, mode fs.FileMode) error {
	at, err := r.resolve(name, true)
	if err != nil {
		return err
	}
	return r.root.Chmod(at, mode)
}

func (r *rootfs) chown(name string, uid, gid int) error {
	at, err := r.resolve(name, false)
	if err != nil {
		return err
	}
	return r.root.Lchown(at, uid, gid)
}
