package template

import (
	"errors"
	"io/fs"
	"path"

	filetree "github.com/bothy-dev/bothy/template/tree"
	"golang.org/x/sys/unix"
)

// FinishTree adds to a tree what sandboxes need, without changing what exists: the user, the
// folders, the names. searchPath is the PATH of commands; "" means the default.
func FinishTree(t *filetree.Tree, searchPath string) error {
	return finish(&treeFiles{t}, searchPath)
}

// treeFiles are files in memory.
type treeFiles struct{ t *filetree.Tree }

// maxSmall limits the files that are read while finishing.
const maxSmall = 16 << 20

func (f *treeFiles) keeps() bool { return true }

func (f *treeFiles) resolve(name string, follow bool) (string, error) {
	return f.t.Resolve(name, follow)
}

func (f *treeFiles) exists(name string) bool {
	_, err := f.t.Get(name)
	return err == nil
}

func (f *treeFiles) read(name string) ([]byte, error) {
	n, err := f.t.Get(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !n.IsFile() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: unix.EINVAL}
	}
	return n.Data.Read(maxSmall)
}

// write leaves a file alone if it already has the right content.
func (f *treeFiles) write(name, content string, mode fs.FileMode) error {
	at, err := f.t.Resolve(name, false)
	if err != nil {
		return err
	}
	bits := unix.S_IFREG | modeBits(mode)
	if old, err := f.t.Lget(at); err == nil && old.Mode == bits && old.UID == 0 && old.Data.Size == int64(len(content)) {
		if have, err := old.Data.Read(maxSmall); err == nil && string(have) == content {
			return nil
		}
	}
	return f.t.Put(at, &filetree.Node{Mode: bits, Time: stampTime, Data: filetree.Text(content)})
}

func modeBits(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	for m, b := range map[fs.FileMode]uint32{fs.ModeSetuid: unix.S_ISUID, fs.ModeSetgid: unix.S_ISGID, fs.ModeSticky: unix.S_ISVTX} {
		if mode&m != 0 {
			bits |= b
		}
	}
	return bits
}

func (f *treeFiles) mkdir(name string, mode fs.FileMode, uid int) error {
	n, err := f.t.Mkdir(name, stampTime)
	if err != nil {
		return err
	}
	n.Mode, n.UID, n.GID = unix.S_IFDIR|modeBits(mode), uint32(uid), uint32(uid)
	return nil
}

func (f *treeFiles) chmod(name string, mode fs.FileMode) error {
	return f.t.Change(name, true, func(n *filetree.Node) { n.Mode = n.Mode&unix.S_IFMT | modeBits(mode) })
}

func (f *treeFiles) chown(name string, uid, gid int) error {
	return f.t.Change(name, false, func(n *filetree.Node) { n.UID, n.GID = uint32(uid), uint32(gid) })
}

func (f *treeFiles) chownAll(name string, uid int) error {
	return f.t.ChangeAll(name, func(n *filetree.Node) { n.UID, n.GID = uint32(uid), uint32(uid) })
}

func (f *treeFiles) list(name string) ([]fs.DirEntry, error) {
	n, err := f.t.Get(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !n.IsDir() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var entries []fs.DirEntry
	for _, child := range n.Names() {
		entries = append(entries, treeEntry{child, n.Child(child)})
	}
	return entries, nil
}

func (f *treeFiles) empty(name string) error {
	entries, err := f.list(name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := f.t.Remove(path.Join(name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (f *treeFiles) remove(names ...string) error {
	for _, name := range names {
		if err := f.t.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// treeEntry is an entry in a list of a folder.
type treeEntry struct {
	name string
	n    *filetree.Node
}

func (e treeEntry) Name() string               { return e.name }
func (e treeEntry) IsDir() bool                { return e.n.IsDir() }
func (e treeEntry) Info() (fs.FileInfo, error) { return nil, errors.ErrUnsupported }

func (e treeEntry) Type() fs.FileMode {
	switch {
	case e.n.IsDir():
		return fs.ModeDir
	case e.n.IsLink():
		return fs.ModeSymlink
	case e.n.IsFile():
		return 0
	}
	return fs.ModeIrregular
}
