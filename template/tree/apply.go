package tree

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/internal/bounded"
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

// MaxBytes limits the total size of one image's files.
const MaxBytes = 64 << 30

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
	return t.ApplyFrom(ctx, List, layer, d, budget)
}

// ApplyFrom is Apply with a list of the layer's entries.
func (t *Tree) ApplyFrom(ctx context.Context, list Lister, layer string, d Dialect, budget *Budget) error {
	f, err := os.Open(layer)
	if err != nil {
		return err
	}
	defer f.Close()
	a := &applier{t: t, layer: layer, dialect: d, seed: maphash.MakeSeed(), own: map[uint64]bool{}, gone: map[uint64]bool{}}
	err = list(ctx, f, budget.maxFiles, func(h *tar.Header, offset int64) error {
		if err := budget.take(h); err != nil {
			return err
		}
		made := t.made
		if err := a.entry(h, offset); err != nil {
			return err
		}
		return t.memory.take(ctx, (t.made-made+1)*nodeBytes+int64(len(h.Name)+len(h.Linkname)))
	})
	if err == nil {
		err = a.links(ctx)
	}
	if err != nil {
		return err
	}
	return t.memory.flush(ctx)
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
	// own are the paths that a layer of a container image has made, and gone those of entries
	// that say that something is gone: as hashes, for paths are long.
	seed      maphash.Seed
	own, gone map[uint64]bool
	// later are hard links to later entries.
	later     []hardLink
	laterText int
}

type hardLink struct{ name, target string }

func (a *applier) hash(path string) uint64 { return maphash.String(a.seed, path) }

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
		a.gone[a.hash(path.Clean(h.Name))] = true
		return a.remove(h.Name)
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if h.Typeflag == tar.TypeLink {
		l := hardLink{strings.Clone(h.Name), strings.Clone(h.Linkname)}
		ok, err := a.link(l)
		if err == nil && !ok {
			err = a.linkLater(l)
		}
		return err
	}
	n, err := a.node(h, offset)
	if err != nil {
		return err
	}
	hides := n.opaque() && a.dialect == Overlay
	return a.put(h.Name, n, hides)
}

// isWhiteout reports whether an engine's entry marks a deletion: a device 0,0, or a hard link
// to one.
func (a *applier) isWhiteout(h *tar.Header) bool {
	return h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0 || h.Typeflag == tar.TypeLink && a.gone[a.hash(path.Clean(h.Linkname))]
}

// put places a node. A folder keeps the content of an existing one, unless it hides that.
func (a *applier) put(name string, n *Node, hides bool) error {
	// Links in its parents are followed within the tree.
	at, err := a.t.Resolve(name, false)
	if err != nil {
		return err
	}
	if err := a.t.put(at, n, n.IsDir() && !hides); err != nil {
		return err
	}
	for p := at; a.dialect == OCI && p != "" && !a.own[a.hash(p)]; {
		a.own[a.hash(p)] = true
		p = p[:max(strings.LastIndexByte(p, '/'), 0)]
	}
	return nil
}

// opaque reports whether an engine marked a folder as hiding the one below it. It removes the
// engine's attributes, which are not part of the tree: in an upload or an image they would hide
// what other layers have.
func (n *Node) opaque() (hides bool) {
	for name, value := range n.Xattrs {
		if isOverlay(name) {
			hides = hides || strings.HasSuffix(name, ".opaque") && value == "y"
			delete(n.Xattrs, name)
		}
	}
	return hides
}

// isOverlay reports whether an attribute belongs to overlay file systems.
func isOverlay(name string) bool {
	return strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay.")
}

func (a *applier) remove(name string) error {
	at, err := a.t.Resolve(name, false)
	if err != nil || at == "" {
		return err
	}
	return a.t.Remove(at)
}

// hideBelow deletes what lower layers have put into a folder.
func (a *applier) hideBelow(dir string) error {
	w, err := a.t.way(dir, true)
	if err != nil {
		return err
	}
	n, at := w.last(a.t.root), strings.Join(w.names, "/")
	if n == nil || !n.IsDir() {
		return nil
	}
	for _, name := range n.Names() {
		if !a.own[a.hash(path.Join(at, name))] {
			a.t.drop(n, name)
		}
	}
	return nil
}

// link adds a hard link to a file, if that exists.
func (a *applier) link(l hardLink) (bool, error) {
	n, err := a.t.Lget(l.target)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if n.IsDir() {
		return false, fmt.Errorf("a hard link to the folder %s", bounded.Short(l.target))
	}
	return true, a.put(l.name, n, false)
}

func (a *applier) linkLater(l hardLink) error {
	a.later = append(a.later, l)
	if a.laterText += len(l.name) + len(l.target); a.laterText > maxText {
		return &bounded.Error{Limit: maxText, What: "bytes of links to later files"}
	}
	return nil
}

func (a *applier) links(ctx context.Context) error {
	for _, l := range a.later {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		ok, err := a.link(l)
		if err == nil && !ok {
			err = fmt.Errorf("a hard link to %s, which does not exist", bounded.Short(l.target))
		}
		if err != nil {
			return pathError(l.name, err)
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
		n.Mode, n.Target = kind|0o777, strings.Clone(h.Linkname)
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
			m[strings.Clone(name)] = strings.Clone(v) // not the whole record
		}
	}
	return m
}
