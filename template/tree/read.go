package tree

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/internal/bounded"
)

// Read returns the tree of an EROFS image, whose files refer to the image. Images are this
// server's own templates, so any damage is an error.
func Read(ctx context.Context, image string) (*Tree, error) {
	f, err := os.Open(image)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadFile(ctx, f, image)
}

// ReadFile is Read of an open image, which the files refer to by a path.
func ReadFile(ctx context.Context, f *os.File, image string) (*Tree, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < superOffset+128 {
		return nil, fmt.Errorf("%s is not an EROFS image", image)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", image, err)
	}
	defer unix.Munmap(mem)
	t := &Tree{}
	r := &reader{ctx: ctx, t: t, path: image, mem: mem, seen: map[uint64]*Node{}}
	if err := binary.Read(bytes.NewReader(mem[superOffset:]), binary.LittleEndian, &r.super); err != nil {
		return nil, err
	}
	if r.super.Magic != superMagic || r.super.BlockBits != blockBits {
		return nil, fmt.Errorf("%s is not an EROFS image with blocks of %d bytes", image, blockSize)
	}
	if t.root, err = r.node(uint64(r.super.RootNID), 0); err != nil {
		return nil, fmt.Errorf("read %s: %w", image, err)
	}
	if !t.root.IsDir() {
		return nil, fmt.Errorf("read %s: / is not a folder", image)
	}
	return t, t.memory.flush(ctx)
}

type reader struct {
	ctx   context.Context
	t     *Tree
	path  string
	mem   []byte
	super superblock
	seen  map[uint64]*Node // by the numbers of their inodes
}

var errDamaged = errors.New("the image is damaged")

func (r *reader) bytes(at, n int64) ([]byte, error) {
	if at < 0 || n < 0 || at > int64(len(r.mem)) || n > int64(len(r.mem))-at {
		return nil, errDamaged
	}
	return r.mem[at : at+n], nil
}

// inode reads either format as an extended inode, and returns the offset of what follows.
func (r *reader) inode(nid uint64) (ino extendedInode, end int64, err error) {
	at := int64(r.super.MetaBlock)<<blockBits + int64(nid)*slotSize
	head, err := r.bytes(at, 2)
	if err != nil {
		return ino, 0, err
	}
	size := int64(compactSize)
	if head[0]&1 == 1 {
		size = inodeSize
	}
	b, err := r.bytes(at, size)
	if err != nil {
		return ino, 0, err
	}
	if size == inodeSize {
		_, err = binary.Decode(b, binary.LittleEndian, &ino)
	} else {
		var c compactInode
		_, err = binary.Decode(b, binary.LittleEndian, &c)
		ino = extendedInode{
			Format: c.Format, XattrCount: c.XattrCount, Mode: c.Mode, Size: uint64(c.Size), Block: c.Block, Inode: c.Inode,
			UID: uint32(c.UID), GID: uint32(c.GID), Time: r.super.BuildTime, Links: uint32(c.Links),
		}
	}
	return ino, at + size, err
}

func (r *reader) node(nid uint64, depth int) (*Node, error) {
	if n := r.seen[nid]; n != nil {
		if n.IsDir() { // only files have several names
			return nil, errDamaged
		}
		return n, nil
	}
	if depth > bounded.MaxDepth {
		return nil, &bounded.Error{Limit: bounded.MaxDepth, What: "levels of folders"}
	}
	ino, end, err := r.inode(nid)
	if err != nil {
		return nil, err
	}
	n := &Node{Mode: uint32(ino.Mode), UID: ino.UID, GID: ino.GID, Time: time.Unix(int64(ino.Time), 0)}
	if end, err = r.xattrs(n, ino, end); err != nil {
		return nil, err
	}
	switch n.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if layout(ino) != layoutPlain && ino.Size > 0 {
			b, err := r.content(ino, end)
			if err != nil {
				return nil, err
			}
			n.Data = Text(string(b))
		} else if ino.Size > 0 {
			n.Data = Data{Path: r.path, Offset: int64(ino.Block) << blockBits, Size: int64(ino.Size)}
		}
	case unix.S_IFLNK:
		b, err := r.content(ino, end)
		if err != nil {
			return nil, err
		}
		n.Target = string(b)
	case unix.S_IFDIR:
		r.seen[nid] = n
		return n, r.dir(n, ino, end, depth)
	case unix.S_IFCHR, unix.S_IFBLK:
		n.Major, n.Minor = unix.Major(uint64(ino.Block)), unix.Minor(uint64(ino.Block))
	}
	r.seen[nid] = n
	return n, nil
}

func layout(ino extendedInode) uint16 { return ino.Format >> 1 & 7 }

// content returns all of an inode's bytes.
func (r *reader) content(ino extendedInode, end int64) ([]byte, error) {
	size, at := int64(ino.Size), int64(ino.Block)<<blockBits
	switch layout(ino) {
	case layoutPlain:
		return r.bytes(at, size)
	case layoutTail:
		whole := size &^ (blockSize - 1)
		var out []byte
		if whole > 0 {
			b, err := r.bytes(at, whole)
			if err != nil {
				return nil, err
			}
			out = append(out, b...)
		}
		b, err := r.bytes(end, size-whole)
		return append(out, b...), err
	}
	return nil, fmt.Errorf("inode layout %d is not supported", layout(ino))
}

func (r *reader) dir(n *Node, ino extendedInode, end int64, depth int) error {
	n.children = map[string]*Node{}
	all, err := r.content(ino, end)
	if err != nil {
		return err
	}
	for len(all) > 0 {
		block := all[:min(blockSize, len(all))]
		all = all[len(block):]
		if err := r.dirents(n, block, depth); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) dirents(n *Node, block []byte, depth int) error {
	if len(block) < direntSize {
		return errDamaged
	}
	count := int(binary.LittleEndian.Uint16(block[8:])) / direntSize
	for i := range count {
		if (i+1)*direntSize > len(block) {
			return errDamaged
		}
		e := block[i*direntSize:]
		from, to := int(binary.LittleEndian.Uint16(e[8:])), len(block)
		if i+1 < count && (i+2)*direntSize <= len(block) {
			to = int(binary.LittleEndian.Uint16(e[direntSize+8:]))
		}
		if from > to || to > len(block) {
			return errDamaged
		}
		name := string(block[from:to])
		if i+1 == count {
			name, _, _ = strings.Cut(name, "\x00")
		}
		if name == "." || name == ".." {
			continue
		}
		if len(name) > bounded.MaxName {
			return errDamaged
		}
		child, err := r.node(binary.LittleEndian.Uint64(e), depth+1)
		if err != nil {
			return err
		}
		n.children[name] = child
		if err := r.t.resize(r.t.size.plus(child.entry(name))); err != nil {
			return err
		}
		if err := r.t.memory.take(r.ctx, nodeBytes+int64(len(name))); err != nil {
			return err
		}
	}
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	return nil
}

// xattrs reads the attributes of an inode and returns where they end. Our images have no shared
// ones.
func (r *reader) xattrs(n *Node, ino extendedInode, at int64) (int64, error) {
	if ino.XattrCount == 0 {
		return at, nil
	}
	end := at + 12 + int64(ino.XattrCount-1)*4
	b, err := r.bytes(at, end-at)
	if err != nil {
		return 0, err
	}
	if b[4] != 0 {
		return 0, errors.New("shared extended attributes are not supported")
	}
	n.Xattrs = map[string]string{}
	for b = b[12:]; len(b) >= 4; {
		name, kind, size := int(b[0]), b[1], int(binary.LittleEndian.Uint16(b[2:]))
		if name == 0 && size == 0 {
			break
		}
		whole := (4 + name + size + 3) &^ 3
		if whole > len(b) {
			return 0, errDamaged
		}
		n.Xattrs[xattrNames[kind]+string(b[4:4+name])] = string(b[4+name : 4+name+size])
		b = b[whole:]
	}
	return end, nil
}
