package pretend

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/bothy-dev/bothy"
)

// Files is the bothy.FileService of a world.
type Files struct{ *World }

// real is where a path of a sandbox lies on this host.
func (w Files) real(id, name string) (string, error) {
	s, err := w.find(id)
	if err != nil {
		return "", err
	}
	if !path.IsAbs(name) {
		name = path.Join(bothy.DefaultCwd, name)
	}
	return filepath.Join(s.root, path.Clean(name)), nil
}

func info(name, real string) (*bothy.FileInfo, error) {
	fi, err := os.Lstat(real)
	if err != nil {
		return nil, fileError(name, err)
	}
	kinds := map[fs.FileMode]bothy.FileType{0: bothy.FileRegular, fs.ModeDir: bothy.FileDirectory, fs.ModeSymlink: bothy.FileSymlink}
	kind, ok := kinds[fi.Mode().Type()]
	if !ok {
		kind = bothy.FileOther
	}
	target, _ := os.Readlink(real)
	return &bothy.FileInfo{
		Name: path.Base(name), Path: name, Type: kind, Size: fi.Size(), LinkTarget: target,
		Mode: fmt.Sprintf("%04o", fi.Mode().Perm()), ModifiedAt: fi.ModTime().UTC(),
	}, nil
}

func fileError(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return bothy.Errorf(bothy.CodeFileNotFound, "there is no file or folder %q", name).WithHint("Check the path.")
	}
	return err
}

// Read opens a file.
func (w Files) Read(_ context.Context, id, name, _ string) (io.ReadCloser, *bothy.FileInfo, error) {
	real, err := w.real(id, name)
	if err != nil {
		return nil, nil, err
	}
	fi, err := info(name, real)
	if err != nil {
		return nil, nil, err
	}
	if fi.Type == bothy.FileDirectory {
		return nil, nil, bothy.Errorf(bothy.CodeIsADirectory, "%s is a folder", name).WithHint("Read the files in it.")
	}
	f, err := os.Open(real)
	return f, fi, err
}

// Write stores a file.
func (w Files) Write(_ context.Context, id, name string, r io.Reader, o bothy.WriteOptions) (*bothy.FileInfo, error) {
	real, err := w.real(id, name)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(real), 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(real)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := io.Copy(f, r); err != nil {
		return nil, err
	}
	if o.Mode != 0 {
		_ = os.Chmod(real, fs.FileMode(o.Mode))
	}
	if !o.ModifiedAt.IsZero() {
		_ = os.Chtimes(real, o.ModifiedAt, o.ModifiedAt)
	}
	return info(name, real)
}

// List lists the entries of a folder itself.
func (w Files) List(_ context.Context, id, name, _ string, _ int) ([]bothy.FileInfo, error) {
	real, err := w.real(id, name)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		return nil, fileError(name, err)
	}
	list := []bothy.FileInfo{}
	for _, e := range entries {
		if fi, err := info(path.Join(name, e.Name()), filepath.Join(real, e.Name())); err == nil {
			list = append(list, *fi)
		}
	}
	return list, nil
}

// Stat describes a file.
func (w Files) Stat(_ context.Context, id, name, _ string) (*bothy.FileInfo, error) {
	real, err := w.real(id, name)
	if err != nil {
		return nil, err
	}
	return info(name, real)
}

// Mkdir makes a folder and those above it.
func (w Files) Mkdir(_ context.Context, id, name, _ string) (*bothy.FileInfo, error) {
	real, err := w.real(id, name)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(real, 0o755); err != nil {
		return nil, err
	}
	return info(name, real)
}

// Move renames.
func (w Files) Move(_ context.Context, id, from, to, _ string) (*bothy.FileInfo, error) {
	realFrom, err := w.real(id, from)
	if err != nil {
		return nil, err
	}
	realTo, err := w.real(id, to)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(realFrom, realTo); err != nil {
		return nil, fileError(from, err)
	}
	return info(to, realTo)
}

// Remove deletes.
func (w Files) Remove(_ context.Context, id, name, _ string) error {
	real, err := w.real(id, name)
	if err != nil {
		return err
	}
	return os.RemoveAll(real)
}

// Watch is not pretended.
func (w Files) Watch(context.Context, string, string, string, bool, func(bothy.FileEvent) error) error {
	return bothy.Errorf(bothy.CodeUnsupported, "a pretended sandbox cannot be watched")
}

// ReadArchive packs a folder, with names relative to it.
func (w Files) ReadArchive(_ context.Context, id, name, _ string, _ bothy.ArchiveOptions) (io.ReadCloser, error) {
	real, err := w.real(id, name)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(real); err != nil {
		return nil, fileError(name, err)
	}
	r, pw := io.Pipe()
	go func() {
		tw := tar.NewWriter(pw)
		err := tw.AddFS(os.DirFS(real))
		if err == nil {
			err = tw.Close()
		}
		pw.CloseWithError(err)
	}()
	return r, nil
}

// WriteArchive unpacks a tar.
func (w Files) WriteArchive(_ context.Context, id, name, _ string, r io.Reader) error {
	real, err := w.real(id, name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(real, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return err
	}
	defer root.Close()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = writeEntry(root, h, tr)
		}
		if err != nil {
			return err
		}
	}
}

func writeEntry(root *os.Root, h *tar.Header, r io.Reader) error {
	name := path.Clean(h.Name)
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, h.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	return root.Chtimes(name, h.ModTime, h.ModTime)
}
