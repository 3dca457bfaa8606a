package tree

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/internal/bounded"
	"github.com/bothy-dev/bothy/internal/disk"
)

// WriteOptions configure how an image is written.
type WriteOptions struct {
	// Time is the image's creation time, in seconds since 1970.
	Time int64
	// Xattrs keeps extended attributes. The sandboxes' kernel must support them.
	Xattrs bool
	// Drop selects attributes to omit. Optional.
	Drop func(name, value string) bool
	// Sum, if set, gets the bytes of the image while it is written.
	Sum hash.Hash
}

// Write writes the tree as an EROFS image. It is not compressed and has no inline content, so
// that sandboxes can map all of it. The same tree makes the same image: first the inodes,
// folder by folder, then the content.
func (t *Tree) Write(image string, o WriteOptions) (err error) {
	w := &writer{o: o, ids: map[*Node]*inode{}}
	w.number(t.root, t.root)
	if err := w.place(); err != nil {
		return err
	}
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	out := disk.NewSparse(f)
	summed := func() error { return nil }
	if o.Sum != nil {
		out.Moved, summed = sumWhile(f, o.Sum)
	}
	err = w.write(out)
	if err == nil {
		err = out.Finish()
	}
	return errors.Join(err, summed())
}

// sumWhile computes the checksum of a file while it is written, and has the kernel begin to store it.
// Call moved when more is there, and end at the end.
func sumWhile(f *os.File, sum hash.Hash) (moved func(int64), end func() error) {
	const step = 8 << 20
	at, told, done := int64(0), make(chan int64, 64), make(chan error, 1)
	moved = func(to int64) {
		if to-at >= step {
			at = to
			told <- to
		}
	}
	go func() {
		var summed int64
		var failed error
		buf := make([]byte, 1<<20)
		for to := range told {
			from := summed
			for summed < to && failed == nil {
				part := buf[:min(int64(len(buf)), to-summed)]
				n, err := f.ReadAt(part, summed)
				if err == io.EOF { // a hole, up to where the file does not reach yet
					clear(part[n:])
					n, err = len(part), nil
				}
				sum.Write(part[:n])
				summed, failed = summed+int64(n), err
			}
			_ = unix.SyncFileRange(int(f.Fd()), from, to-from, unix.SYNC_FILE_RANGE_WRITE) // it only saves time later
		}
		done <- failed
	}()
	return moved, func() error {
		info, err := f.Stat()
		if err == nil {
			told <- info.Size()
		}
		close(told)
		return errors.Join(err, <-done)
	}
}

// inode is a node with its position in the image.
type inode struct {
	n      *Node
	parent *Node
	number uint32
	links  uint32
	offset int64 // from the start of the inodes
	xattrs []byte
	dir    []byte // a folder's content
	size   int64
	block  uint32
}

type writer struct {
	o    WriteOptions
	ids  map[*Node]*inode
	all  []*inode
	meta int64 // bytes of inodes
}

const firstBlock = 1 // the superblock is in block 0

// number orders the inodes: the root first, whose number has only 16 bits.
func (w *writer) number(n, parent *Node) {
	if i := w.ids[n]; i != nil {
		i.links++
		return
	}
	i := &inode{n: n, parent: parent, number: uint32(len(w.all) + 1), links: 1}
	w.ids[n] = i
	w.all = append(w.all, i)
	if !n.IsDir() {
		return
	}
	i.links = 2
	for _, name := range n.Names() {
		c := n.children[name]
		if c.IsDir() {
			i.links++
		}
		w.number(c, n)
	}
}

func (i *inode) nid() uint64 { return uint64(i.offset / slotSize) }

// place assigns the position of everything.
func (w *writer) place() error {
	for _, i := range w.all {
		if w.o.Xattrs {
			var err error
			if i.xattrs, err = packXattrs(i.n.Xattrs, w.o.Drop); err != nil {
				return err
			}
		}
		i.offset = w.meta
		w.meta += (inodeSize + int64(len(i.xattrs)) + slotSize - 1) &^ (slotSize - 1)
	}
	next := firstBlock + (w.meta+blockSize-1)/blockSize
	for _, i := range w.all {
		switch {
		case i.n.IsDir():
			var err error
			if i.dir, err = w.folder(i); err != nil {
				return err
			}
			i.size = int64(len(i.dir))
		case i.n.IsFile():
			i.size = i.n.Data.Size
		case i.n.IsLink():
			i.size = int64(len(i.n.Target))
		}
		if i.size > 0 {
			i.block = uint32(next)
			next += (i.size + blockSize - 1) / blockSize
		}
		if next > math.MaxUint32 {
			return fmt.Errorf("the image would have more than %d blocks", uint32(math.MaxUint32))
		}
	}
	return nil
}

// folder encodes a folder's content: blocks of entries followed by their names.
func (w *writer) folder(i *inode) ([]byte, error) {
	type entry struct {
		name string
		i    *inode
	}
	list := []entry{{".", i}, {"..", w.ids[i.parent]}}
	for _, name := range i.n.Names() {
		if len(name) > bounded.MaxName { // it would not fit into a block
			return nil, pathError(name, &bounded.Error{Limit: bounded.MaxName, What: "bytes in a name"})
		}
		list = append(list, entry{name, w.ids[i.n.children[name]]})
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	var out []byte
	for len(list) > 0 {
		used, count := 0, 0
		for count < len(list) && used+direntSize+len(list[count].name) <= blockSize {
			used += direntSize + len(list[count].name)
			count++
		}
		at := count * direntSize
		var names []byte
		for _, e := range list[:count] {
			out = binary.LittleEndian.AppendUint64(out, e.i.nid())
			out = binary.LittleEndian.AppendUint16(out, uint16(at+len(names)))
			out = append(out, direntType(e.i.n), 0)
			names = append(names, e.name...)
		}
		out = append(out, names...)
		list = list[count:]
		if len(list) > 0 {
			out = append(out, make([]byte, blockSize-used)...)
		}
	}
	return out, nil
}

func direntType(n *Node) byte {
	switch n.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 1
	case unix.S_IFDIR:
		return 2
	case unix.S_IFCHR:
		return 3
	case unix.S_IFBLK:
		return 4
	case unix.S_IFIFO:
		return 5
	case unix.S_IFSOCK:
		return 6
	case unix.S_IFLNK:
		return 7
	}
	return 0
}

func (w *writer) write(f *disk.Sparse) error {
	last := firstBlock + uint32((w.meta+blockSize-1)/blockSize)
	for _, i := range w.all {
		if i.size > 0 {
			last = i.block + uint32((i.size+blockSize-1)/blockSize)
		}
	}
	super := superblock{
		Magic: superMagic, BlockBits: blockBits, RootNID: 0, Inodes: uint64(len(w.all)), BuildTime: uint64(w.o.Time),
		Blocks: last, MetaBlock: firstBlock,
	}
	b := bufio.NewWriterSize(f, 1<<20)
	b.Write(make([]byte, superOffset))
	if err := binary.Write(b, binary.LittleEndian, super); err != nil {
		return err
	}
	pad(b, superOffset+int64(binary.Size(super)))
	for _, i := range w.all {
		w.writeInode(b, i)
	}
	pad(b, w.meta)
	// The rest is copied by the kernel where possible.
	if err := b.Flush(); err != nil {
		return err
	}
	from := sources{}
	defer from.Close()
	for _, i := range w.all {
		if err := i.writeContent(f, b, from); err != nil {
			return err
		}
	}
	return b.Flush()
}

// pad fills the rest of a partly written block.
func pad(w *bufio.Writer, written int64) {
	if rest := written % blockSize; rest > 0 {
		w.Write(make([]byte, blockSize-rest)) // Flush returns any error
	}
}

func (w *writer) writeInode(b *bufio.Writer, i *inode) {
	n := i.n
	d := extendedInode{
		Format: 1 | layoutPlain<<1, Mode: uint16(n.Mode), Size: uint64(i.size), Block: i.block, Inode: i.number, UID: n.UID, GID: n.GID,
		Time: uint64(n.Time.Unix()), Links: i.links,
	}
	if len(i.xattrs) > 0 {
		d.XattrCount = uint16((len(i.xattrs)-12)/4 + 1)
	}
	switch n.Mode & unix.S_IFMT {
	case unix.S_IFCHR, unix.S_IFBLK:
		d.Block = uint32(unix.Mkdev(n.Major, n.Minor))
	}
	buf := make([]byte, inodeSize, inodeSize+len(i.xattrs)+slotSize)
	_, _ = binary.Encode(buf, binary.LittleEndian, &d) // cannot fail: it has a fixed size
	buf = append(buf, i.xattrs...)
	if rest := len(buf) % slotSize; rest > 0 {
		buf = append(buf, make([]byte, slotSize-rest)...)
	}
	b.Write(buf)
}

func (i *inode) writeContent(f *disk.Sparse, b *bufio.Writer, from sources) error {
	if i.size == 0 {
		return nil
	}
	switch {
	case i.n.IsDir():
		b.Write(i.dir)
	case i.n.IsLink():
		b.WriteString(i.n.Target)
	default:
		if err := copyData(f, b, i.n.Data, from); err != nil {
			return err
		}
	}
	pad(b, i.size)
	return nil
}

// large is the size from which a copy by the kernel pays off.
const large = 256 << 10

func copyData(f *disk.Sparse, b *bufio.Writer, d Data, from sources) error {
	if d.Path == "" || d.Size < large {
		r, err := from.open(d)
		if err != nil {
			return err
		}
		return exactly(io.Copy(b, r))(d.Size)
	}
	if err := b.Flush(); err != nil {
		return err
	}
	src, err := from.file(d.Path)
	if err != nil {
		return err
	}
	return f.CopyRange(src, d.Offset, d.Size)
}

func exactly(n int64, err error) func(want int64) error {
	return func(want int64) error {
		if err == nil && n != want {
			return io.ErrUnexpectedEOF
		}
		return err
	}
}

// packXattrs encodes extended attributes.
func packXattrs(m map[string]string, drop func(name, value string) bool) ([]byte, error) {
	if len(m) == 0 {
		return nil, nil
	}
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	out := make([]byte, 12)
	for _, name := range names {
		kind, rest, ok := xattrKind(name)
		if kind == aclAccess || kind == aclDefault { // engines and container images use different formats
			continue
		}
		if drop != nil && drop(name, m[name]) {
			continue
		}
		if !ok || isOverlay(name) || len(rest) > 255 || len(m[name]) > math.MaxUint16 {
			continue // no kernel would accept it, or it would take it for its own
		}
		var e bytes.Buffer
		e.Write([]byte{byte(len(rest)), kind})
		_ = binary.Write(&e, binary.LittleEndian, uint16(len(m[name])))
		e.WriteString(rest + m[name])
		out = append(out, e.Bytes()...)
		if odd := len(out) % 4; odd > 0 {
			out = append(out, make([]byte, 4-odd)...)
		}
	}
	if len(out) == 12 {
		return nil, nil
	}
	if len(out) > blockSize {
		return nil, fmt.Errorf("a file has %d bytes of extended attributes, more than the format allows", len(out))
	}
	return out, nil
}

func xattrKind(name string) (kind uint8, rest string, ok bool) {
	for k, prefix := range xattrNames {
		if strings.HasPrefix(name, prefix) && (strings.HasSuffix(prefix, ".") || name == prefix) {
			return k, name[len(prefix):], true
		}
	}
	return 0, "", false
}
