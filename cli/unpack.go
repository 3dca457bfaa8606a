package cli

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy/internal/links"
)

// unpacker writes a tar from a sandbox below one folder of this host. The tar
// is not trusted: os.Root keeps every write inside the folder, and links that
// lead out of it are refused.
type unpacker struct {
	root    *os.Root
	folders []*tar.Header
	links   []*tar.Header
	refused []string
}

// unpack writes a tar below folder, and returns what it refused to write.
func unpack(r io.Reader, folder string) (refused []string, err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	u := &unpacker{root: root}
	err = u.readAll(tar.NewReader(r))
	// Links come last, so that nothing is written through them, and folders' times after
	// everything that changes them.
	if err == nil {
		err = u.writeLinks()
	}
	if err == nil {
		err = u.finishFolders()
	}
	return u.refused, err
}

func (u *unpacker) readAll(tr *tar.Reader) error {
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the archive from the sandbox is damaged: %w", err)
		}
		h.Name = path.Clean(h.Name)
		if !filepath.IsLocal(h.Name) {
			u.refuse(h, "its name leads out of the destination")
			continue
		}
		if err := u.entry(h, tr); err != nil {
			return err
		}
	}
}

func (u *unpacker) refuse(h *tar.Header, why string) {
	u.refused = append(u.refused, fmt.Sprintf("%s: %s", strings.Map(printable, h.Name), why))
}

func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		u.folders = append(u.folders, h)
		return u.root.MkdirAll(h.Name, 0o700)
	case tar.TypeReg:
		return u.file(h, r)
	case tar.TypeLink:
		return u.hardLink(h)
	case tar.TypeSymlink:
		u.links = append(u.links, h)
		return nil
	}
	u.refuse(h, "it is neither a file, a folder nor a link")
	return nil
}

func (u *unpacker) file(h *tar.Header, r io.Reader) error {
	if err := u.clear(h.Name); err != nil {
		return err
	}
	f, err := u.root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if chmodErr := f.Chmod(h.FileInfo().Mode().Perm()); err == nil {
		err = chmodErr
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return u.root.Chtimes(h.Name, h.ModTime, h.ModTime)
}

func (u *unpacker) hardLink(h *tar.Header) error {
	if !filepath.IsLocal(h.Linkname) {
		u.refuse(h, "it is a link that leads out of the destination")
		return nil
	}
	if err := u.clear(h.Name); err != nil {
		return err
	}
	return u.root.Link(path.Clean(h.Linkname), h.Name)
}

// clear makes room for a new entry: it makes its parent folders, and removes what is in its
// place.
func (u *unpacker) clear(name string) error {
	if err := u.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (u *unpacker) writeLinks() error {
	for _, h := range u.links {
		if err := u.clear(h.Name); err != nil {
			return err
		}
		if err := u.root.Symlink(h.Linkname, h.Name); err != nil {
			return err
		}
	}
	// A link may lead out only by way of another one, so all are made first and then followed by
	// os.Root, which checks. Removing one can only make others dangle.
	for _, h := range u.links {
		why := "outside of the destination"
		if _, err := u.root.Stat(h.Name); err == nil || errors.Is(err, fs.ErrNotExist) {
			if !links.Climbs(h.Linkname) {
				continue
			}
			why = "which may lead out of the destination once other files are there"
		}
		u.refuse(h, fmt.Sprintf("it is a link to %s, %s", strings.Map(printable, h.Linkname), why))
		if err := u.root.Remove(h.Name); err != nil {
			return err
		}
	}
	return nil
}

// finishFolders gives folders their permissions and times, the deepest first.
func (u *unpacker) finishFolders() error {
	slices.SortFunc(u.folders, func(a, b *tar.Header) int { return strings.Compare(b.Name, a.Name) })
	for _, h := range u.folders {
		if err := u.root.Chmod(h.Name, h.FileInfo().Mode().Perm()); err != nil {
			return err
		}
		if err := u.root.Chtimes(h.Name, h.ModTime, h.ModTime); err != nil {
			return err
		}
	}
	return nil
}
