package tree

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"path"

	"golang.org/x/sys/unix"
)

// Settle replaces the files of t that are unchanged from old by old's nodes, so that a layer
// omits them. Times are compared in whole seconds.
func (t *Tree) Settle(old *Tree) error {
	known, from := map[*Node]*Node{}, sources{}
	defer from.Close()
	if err := settle(t.root, old.root, known, from); err != nil {
		return err
	}
	for n, o := range known { // under additional names
		n.successor = o
	}
	succeed(t.root)
	return nil
}

func settle(dir, old *Node, known map[*Node]*Node, from sources) error {
	for name, n := range dir.children {
		o := old.children[name]
		switch {
		case o == nil || o == n || known[n] != nil:
		case n.IsDir() && o.IsDir():
			if err := settle(n, o, known, from); err != nil {
				return err
			}
		case !n.IsDir() && n.like(o):
			same, err := from.same(context.Background(), n.Data, o.Data)
			if err != nil {
				return err
			}
			if same {
				known[n] = o
			}
		}
	}
	return nil
}

func succeed(dir *Node) {
	for name, n := range dir.children {
		if n.IsDir() {
			succeed(n)
		} else if n.successor != nil {
			dir.children[name] = n.successor
		}
	}
}

// like reports whether everything but the content is equal.
func (n *Node) like(o *Node) bool { return n.Time.Equal(o.Time) && n.alike(o) }

// alike reports whether everything but the content and the time is equal.
func (n *Node) alike(o *Node) bool {
	return n.owned(o) && n.Target == o.Target && n.Major == o.Major && n.Minor == o.Minor && maps.Equal(n.Xattrs, o.Xattrs)
}

// owned reports whether the type, the permissions and the owner are equal.
func (n *Node) owned(o *Node) bool { return n.Mode == o.Mode && n.UID == o.UID && n.GID == o.GID }

// WriteLayer writes the differences from base as a tar in the dialect Overlay, including all
// parent folders.
func (t *Tree) WriteLayer(base *Tree, w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<20)
	d := &differ{w: tar.NewWriter(out), changed: map[*Node]bool{}, linked: map[*Node]string{}, from: sources{}, buf: make([]byte, 256<<10)}
	defer d.from.Close()
	d.collect(t.root, base.root)
	if err := d.dir("./", t.root, base.root); err != nil {
		return err
	}
	return errors.Join(d.w.Close(), out.Flush())
}

type differ struct {
	w *tar.Writer
	// changed are files that the base does not have, or not under all their names: then all
	// names are written, or they would no longer be hard links.
	changed map[*Node]bool
	linked  map[*Node]string // under which name a file is in the tar
	from    sources
	buf     []byte
	// above are the parent folders of the next entry.
	above []above
}

type above struct {
	name    string
	n       *Node
	written bool
}

func (d *differ) collect(n, old *Node) {
	for name, c := range n.children {
		var was *Node
		if old != nil {
			was = old.children[name]
		}
		switch {
		case !c.IsDir():
			if c != was {
				d.changed[c] = true
			}
		case was != nil && was.IsDir():
			d.collect(c, was)
		default:
			d.collect(c, nil)
		}
	}
}

// dir walks a folder; old is nil if the base has none there.
func (d *differ) dir(name string, n, old *Node) error {
	d.above = append(d.above, above{name: name, n: n})
	defer func() { d.above = d.above[:len(d.above)-1] }()
	if old == nil || !n.like(old) || name == "./" {
		if err := d.flush(); err != nil {
			return err
		}
	}
	if old != nil {
		for _, child := range old.Names() {
			if n.children[child] == nil {
				if err := d.gone(name + child); err != nil {
					return err
				}
			}
		}
	}
	for _, child := range n.Names() {
		var was *Node
		if old != nil {
			was = old.children[child]
		}
		if err := d.entry(name+child, n.children[child], was); err != nil {
			return err
		}
	}
	return nil
}

// flush writes the parent folders of the next entry, unless they are written already.
func (d *differ) flush() error {
	for i, p := range d.above {
		if p.written {
			continue
		}
		if err := d.w.WriteHeader(header(p.name, p.n)); err != nil {
			return err
		}
		d.above[i].written = true
	}
	return nil
}

func (d *differ) gone(name string) error {
	if err := d.flush(); err != nil {
		return err
	}
	return d.w.WriteHeader(&tar.Header{Typeflag: tar.TypeChar, Name: name, Format: tar.FormatPAX})
}

func (d *differ) entry(name string, n, was *Node) error {
	if n.IsDir() {
		if was != nil && !was.IsDir() {
			was = nil
		}
		return d.dir(name+"/", n, was)
	}
	if n == was && !d.changed[n] {
		return nil
	}
	if err := d.flush(); err != nil {
		return err
	}
	if first, ok := d.linked[n]; ok {
		h := header(name, n)
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		return d.w.WriteHeader(h)
	}
	d.linked[n] = name
	if err := d.w.WriteHeader(header(name, n)); err != nil {
		return err
	}
	if !n.IsFile() || n.Data.Size == 0 {
		return nil
	}
	r, err := d.from.open(n.Data)
	if err != nil {
		return err
	}
	// Wrap both in structs to hide their own copy methods, which allocate buffers.
	_, err = io.CopyBuffer(struct{ io.Writer }{d.w}, struct{ io.Reader }{r}, d.buf)
	return err
}

// header is the tar header of a node. Engines expect names to start with ./.
func header(name string, n *Node) *tar.Header {
	h := &tar.Header{
		Name: name, Mode: int64(n.Mode & 0o7777), Uid: int(n.UID), Gid: int(n.GID), ModTime: n.Time, Format: tar.FormatPAX,
		PAXRecords: map[string]string{},
	}
	for k, v := range n.Xattrs {
		if k != "" && v != "" && !isOverlay(k) { // a base may have them from elsewhere
			h.PAXRecords[xattrPrefix+k] = v
		}
	}
	switch n.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		h.Typeflag, h.Size = tar.TypeReg, n.Data.Size
	case unix.S_IFDIR:
		h.Typeflag = tar.TypeDir
		if name != "./" {
			h.Name = "./" + path.Clean(name) + "/"
		}
	case unix.S_IFLNK:
		h.Typeflag, h.Linkname = tar.TypeSymlink, n.Target
	case unix.S_IFCHR:
		h.Typeflag, h.Devmajor, h.Devminor = tar.TypeChar, int64(n.Major), int64(n.Minor)
	case unix.S_IFBLK:
		h.Typeflag, h.Devmajor, h.Devminor = tar.TypeBlock, int64(n.Major), int64(n.Minor)
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	}
	return h
}
