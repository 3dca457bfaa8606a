package template

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	filetree "github.com/bothy-dev/bothy/template/tree"
)

// maxLinks limits the symbolic links on the way to one file, as Linux does.
const maxLinks = 40

// A rootfs is the folder that becomes a template's root file system. It may
// contain untrusted links, so every path is resolved as the sandbox would see
// it: absolute links start at this folder, and nothing leads out of it.
type rootfs struct {
	dir  string
	root *os.Root
}

func openRootfs(dir string) (*rootfs, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &rootfs{dir: dir, root: root}, nil
}

func (r *rootfs) Close() error { return r.root.Close() }

// resolve returns where a path leads, relative to the root, with links in its
// parents resolved; the last part is followed too if follow is set. Missing parts
// are taken literally.
func (r *rootfs) resolve(name string, follow bool) (string, error) {
	done, rest := ".", filetree.Split(name)
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if part == ".." {
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		if len(rest) == 0 && !follow {
			return next, nil
		}
		info, err := r.root.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if err != nil {
			return "", err
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: too many symbolic links", name)
		}
		target, err := r.root.Readlink(next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			done = "."
		}
		rest = append(filetree.Split(target), rest...)
	}
	return done, nil
}

// parent creates the folders above a path and returns where the path leads.
func (r *rootfs) parent(name string) (string, error) {
	at, err := r.resolve(name, false)
	if err != nil {
		return "", err
	}
	return at, r.makeAll(path.Dir(at))
}

// makeAll creates a folder and missing parents. New ones are accessible to all, whatever the
// server's umask.
func (r *rootfs) makeAll(at string) error {
	if _, err := r.root.Lstat(at); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := r.makeAll(path.Dir(at)); err != nil {
		return err
	}
	if err := r.root.Mkdir(at, 0o755); err != nil {
		return err
	}
	return r.root.Chmod(at, 0o755)
}

func (r *rootfs) exists(name string) bool {
	at, err := r.resolve(name, true)
	if err != nil {
		return false
	}
	_, err = r.root.Lstat(at)
	return err == nil
}

// read returns a file's content, or nothing if it does not exist.
func (r *rootfs) read(name string) ([]byte, error) {
	at, err := r.resolve(name, true)
	if err != nil {
		return nil, err
	}
	data, err := r.root.ReadFile(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// write creates a file owned by root, replacing whatever is there: a link is
// replaced and not followed.
func (r *rootfs) write(name, content string, mode fs.FileMode) error {
	at, err := r.parent(name)
	if err != nil {
		return err
	}
	if err := r.root.RemoveAll(at); err != nil {
		return err
	}
	if err := r.root.WriteFile(at, []byte(content), mode.Perm()); err != nil {
		return err
	}
	return r.root.Chmod(at, mode)
}

// copyIn creates a file from a stream, replacing whatever is there.
func (r *rootfs) copyIn(name string, content io.Reader, mode fs.FileMode) error {
	at, err := r.parent(name)
	if err != nil {
		return err
	}
	if err := r.root.RemoveAll(at); err != nil {
		return err
	}
	f, err := r.root.OpenFile(at, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// mkdir creates a folder, or gives an existing one this mode and owner.
func (r *rootfs) mkdir(name string, mode fs.FileMode, uid int) error {
	at, err := r.resolve(name, true)
	if err != nil {
		return err
	}
	if err := r.makeAll(at); err != nil {
		return err
	}
	if err := r.root.Chown(at, uid, uid); err != nil {
		return err
	}
	return r.root.Chmod(at, mode)
}

// symlink creates a link, replacing whatever is there.
func (r *rootfs) symlink(target, name string) error {
	at, err := r.parent(name)
	if err != nil {
		return err
	}
	if err := r.root.RemoveAll(at); err != nil {
		return err
	}
	return r.root.Symlink(target, at)
}

// remove deletes what a path names; links themselves, not their targets.
func (r *rootfs) remove(names ...string) error {
	for _, name := range names {
		at, err := r.resolve(name, false)
		if err != nil {
			return err
		}
		if err := r.root.RemoveAll(at); err != nil {
			return err
		}
	}
	return nil
}

// empty deletes the content of a folder.
func (r *rootfs) empty(name string) error {
	entries, err := r.list(name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := r.remove(path.Join(name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// list returns the entries of a folder, or none if it does not exist.
func (r *rootfs) list(name string) ([]fs.DirEntry, error) {
	at, err := r.resolve(name, true)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(r.root.FS(), at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

// chownAll gives a folder and everything in it to a user.
func (r *rootfs) chownAll(name string, uid int) error {
	at, err := r.resolve(name, true)
	if err != nil {
		return err
	}
	return fs.WalkDir(r.root.FS(), at, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return r.root.Lchown(p, uid, uid)
	})
}

// touchAll sets every file's time to the one in the image, so that compiled Python files match
// their sources.
func (r *rootfs) touchAll(name string) error {
	at, err := r.resolve(name, true)
	if err != nil {
		return err
	}
	return fs.WalkDir(r.root.FS(), at, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		return r.root.Chtimes(p, stampTime, stampTime)
	})
}
