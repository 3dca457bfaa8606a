package erofs

import (
	"encoding/binary"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
)

// Sizes of on-disk structures of extended attributes.
const (
	xattrHeaderSize = 12
	xattrEntrySize  = 4
	// xattrCountOff is the offset of the attribute count in both forms of an inode.
	xattrCountOff = 2
)

// xattrPrefixes are the name prefixes that are stored as numbers. Those of access control
// lists are not supported.
var xattrPrefixes = map[uint8]string{1: "user.", 4: "trusted.", 6: "security."}

// xattrsSize returns how many bytes of attributes follow an inode with this count.
func xattrsSize(count uint16) int {
	if count == 0 {
		return 0
	}
	return xattrHeaderSize + int(count-1)*4
}

// Xattrs calls fn for the extended attributes of the inode, until it returns false. The
// value points into the image.
func (i *Inode) Xattrs(fn func(name string, value []byte) bool) error {
	at := i.image.sb.NidToOffset(i.nid)
	b, err := i.image.BytesAt(at+xattrCountOff, 2)
	if err != nil {
		return err
	}
	size := xattrsSize(binary.LittleEndian.Uint16(b))
	if size == 0 {
		return nil
	}
	inode := uint64(InodeCompactSize)
	if i.Layout() == InodeLayoutExtended {
		inode = InodeExtendedSize
	}
	if b, err = i.image.BytesAt(at+inode, uint64(size)); err != nil {
		return err
	}
	shared := int(b[4])
	if xattrHeaderSize+4*shared > size {
		return linuxerr.EUCLEAN
	}
	ids, own := b[xattrHeaderSize:xattrHeaderSize+4*shared], b[xattrHeaderSize+4*shared:]
	for len(own) >= xattrEntrySize {
		more, n, err := oneXattr(own, fn)
		if err != nil || !more {
			return err
		}
		own = own[min(n, len(own)):]
	}
	for ; len(ids) > 0; ids = ids[4:] {
		off := i.image.sb.BlockAddrToOffset(i.image.sb.XattrBlockAddr) + 4*uint64(binary.LittleEndian.Uint32(ids))
		head, err := i.image.BytesAt(off, xattrEntrySize)
		if err == nil {
			head, err = i.image.BytesAt(off, uint64(entrySize(head)))
		}
		if err != nil {
			return err
		}
		if more, _, err := oneXattr(head, fn); err != nil || !more {
			return err
		}
	}
	return nil
}

// entrySize returns the size of an entry: its header, name and value.
func entrySize(head []byte) int {
	return xattrEntrySize + int(head[0]) + int(binary.LittleEndian.Uint16(head[2:]))
}

// oneXattr reads the entry at the start of b. n is the offset of the next one.
func oneXattr(b []byte, fn func(name string, value []byte) bool) (more bool, n int, err error) {
	size := entrySize(b)
	if size > len(b) {
		return false, 0, linuxerr.EUCLEAN
	}
	n = (size + 3) &^ 3
	prefix, ok := xattrPrefixes[b[1]]
	if !ok {
		return true, n, nil
	}
	value := xattrEntrySize + int(b[0])
	return fn(prefix+string(b[xattrEntrySize:value]), b[value:size]), n, nil
}
