package tree

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Dialect is how a layer marks deletions.
type Dialect int

// The dialects.
const (
	// Overlay is the engines' dialect: devices 0,0 and an attribute of folders.
	Overlay Dialect = iota
	// OCI is that of container images: files whose names start with .wh.
	OCI
	// Plain is that of archives, which cannot delete.
	Plain
)

const (
	whiteout       = ".wh."
	opaqueWhiteout = ".wh..wh..opq"
	xattrPrefix    = "SCHILY.xattr."
)

// Limits for untrusted input.
const (
	// MaxBytes limits the total size of one image's files.
	MaxBytes = 64 << 30
	// MaxFiles limits their number.
	MaxFiles = 4_000_000
)

// A Budget limits and counts what is read.
type Budget struct {
	maxBytes, maxFiles int64
	bytes, files       int64
}

// NewBudget is the budget of one image.
func NewBudget() *Budget { return BudgetOf(MaxBytes, MaxFiles) }

// BudgetOf returns a budget of the given bytes and files.
func BudgetOf(bytes, files int64) *Budget { return &Budget{maxBytes: bytes, maxFiles: files} }

func (b *Budget) take(h *tar.Header) error {
	if b.bytes += h.Size; b.bytes > b.maxBytes {
		return fmt.Errorf("it contains more than %d GB", b.maxBytes>>30)
	}
	if b.files++; b.files > b.maxFiles {
		return fmt.Errorf("it contains more than %d files", b.maxFiles)
	}
	return nil
}

// Apply applies a layer to the tree: an uncompressed tar on the host, which must not be
// deleted, since the tree's files refer to it.
func (t *Tree) Apply(ctx context.Context, layer string, d Dialect, budget *Budget) error {
	f, err := os.Open(layer)
	if err != nil {
		return err
	}
	defer f.Close()
	at := &position{r: f}
	a := &applier{t: t, layer: layer, dialect: d, own: map[string]bool{}, gone: map[string]bool{}}
	for r := tar.NewReader(at); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = budget.take(h)
		}
		if err != nil {
			return err
		}
		if err := a.entry(h, at.n); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	return a.links()
}

// position tracks how far a file has been read, and skips in it.
type position struct {
	r *os.File
	n int64
}

func (p *position) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.n += int64(n)
	return n, err
}

func (p *position) Seek(offset int64, whence int) (int64, error) {
	n, err := p.r.Seek(offset, whence)
	if err == nil {
		p.n = n
	}
	return n, err
}

type applier struct {
	t       *Tree
	layer   string
	dialect Dialect
	own     map[string]bool // what this layer has put there
	gone    map[string]bool // names of entries that say that something is gone
	later   []*tar.Header   // hard links to later entries
}

func (a *applier) entry(h *tar.Header, offset int64) error {
	base := path.Base(h.Name)
	if a.dialect == OCI {
		switch {
		case base == opaqueWhiteout:
			return a.hideBelow(path.Dir(h.Name))
		case strings.HasPrefix(base, whiteout):
			return a.remove(path.Join(path.Dir(h.Name), strings.TrimPrefix(base, whiteout)))
		}
	} else if a.dialect == Overlay && a.isWhiteout(h) {
		a.gone[path.Clean(h.Name)] = true
		return a.remove(h.Name)
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if h.Typeflag == tar.TypeLink {
		ok, err := a.link(h)
		if err == nil && !ok {
			a.later = append(a.later, h)
		}
		return err
	}
	n, err := a.node(h, offset)
	if err != nil {
		return err
	}
	return a.put(h.Name, n)
}

// isWhiteout reports whether an engine's entry marks a deletion: a device 0,0, or a hard link
// to one.
func (a *applier) isWhiteout(h *tar.Header) bool {
	return h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0 || h.Typeflag == tar.TypeLink && a.gone[path.Clean(h.Linkname)]
}

// resolve returns the place of an entry. Links in its parents are followed within the tree.
func (a *applier) resolve(name string) (string, error) { return a.t.Resolve(name, false) }

func (a *applier) put(name string, n *Node) error {
	at, err := a.resolve(name)
	if err != nil {
		return err
	}
	for p := at; p != "." && p != "" && !a.own[p]; p = path.Dir(p) {
		a.own[p] = true
	}
	if n.IsDir() {
		hidden := a.dialect == Overlay && n.opaque()
		if old := a.t.at(at); old != nil && old.IsDir() && !hidden {
			n.children = old.children
		}
	}
	return a.t.Put(at, n)
}

// opaque reports whether an engine marked a folder as hiding the one below it. It removes the
// engine's attributes, which are not part of the tree.
func (n *Node) opaque() (hides bool) {
	for name, value := range n.Xattrs {
		if strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay.") {
			hides = hides || strings.HasSuffix(name, ".opaque") && value == "y"
			delete(n.Xattrs, name)
		}
	}
	return hides
}

func (a *applier) remove(name string) error {
	at, err := a.resolve(name)
	if err != nil {
		return err
	}
	if len(Split(at)) == 0 {
		return nil
	}
	return a.t.Remove(at)
}

// hideBelow deletes what lower layers have put into a folder.
func (a *applier) hideBelow(dir string) error {
	at, err := a.t.Resolve(dir, true)
	if err != nil {
		return err
	}
	n := a.t.at(at)
	if n == nil || !n.IsDir() {
		return nil
	}
	for _, name := range n.Names() {
		if !a.own[path.Join(at, name)] {
			delete(n.children, name)
		}
	}
	return nil
}

// link adds a hard link to a file, if that exists.
func (a *applier) link(h *tar.Header) (bool, error) {
	n, err := a.t.Lget(h.Linkname)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if n.IsDir() {
		return false, fmt.Errorf("a hard link to the folder %s", h.Linkname)
	}
	return true, a.put(h.Name, n)
}

func (a *applier) links() error {
	for _, h := range a.later {
		ok, err := a.link(h)
		if err == nil && !ok {
			err = fmt.Errorf("a hard link to %s, which does not exist", h.Linkname)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	return nil
}

// fileTypes maps types of entries to file types.
var fileTypes = map[byte]uint32{
	tar.TypeReg: unix.S_IFREG, tar.TypeDir: unix.S_IFDIR, tar.TypeSymlink: unix.S_IFLNK,
	tar.TypeChar: unix.S_IFCHR, tar.TypeBlock: unix.S_IFBLK, tar.TypeFifo: unix.S_IFIFO,
}

// node returns the node that an entry describes.
func (a *applier) node(h *tar.Header, offset int64) (*Node, error) {
	kind, ok := fileTypes[h.Typeflag]
	if !ok {
		return nil, fmt.Errorf("entries of type %q are not supported", h.Typeflag)
	}
	n := &Node{
		Mode: kind | uint32(h.Mode)&0o7777, UID: uint32(h.Uid), GID: uint32(h.Gid), Time: h.ModTime.Truncate(time.Second), Xattrs: xattrs(h),
	}
	switch kind {
	case unix.S_IFREG:
		n.Data = Data{Path: a.layer, Offset: offset, Size: h.Size}
		if h.Size == 0 {
			n.Data = Data{}
		}
	case unix.S_IFDIR:
		n.children = map[string]*Node{}
	case unix.S_IFLNK:
		n.Mode, n.Target = kind|0o777, h.Linkname
	case unix.S_IFCHR, unix.S_IFBLK:
		n.Major, n.Minor = uint32(h.Devmajor), uint32(h.Devminor)
	}
	return n, nil
}

func xattrs(h *tar.Header) map[string]string {
	var m map[string]string
	for k, v := range h.PAXRecords {
		if name, ok := strings.CutPrefix(k, xattrPrefix); ok {
			if m == nil {
				m = map[string]string{}
			}
			m[name] = v
		}
	}
	return m
}
