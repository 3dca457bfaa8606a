package erofs

import (
	"encoding/binary"
	"maps"
	"testing"
)

// attributed is an image whose inode 0 has the attributes in area, and whose shared ones
// lie at its end.
func attributed(area, shared []byte) *Inode {
	b := make([]byte, 4096)
	b[0] = InodeLayoutExtended
	binary.LittleEndian.PutUint16(b[xattrCountOff:], uint16((len(area)-xattrHeaderSize)/4+1))
	copy(b[InodeExtendedSize:], area)
	image := &Image{bytes: append(b, shared...)}
	image.sb.BlockSizeBits = 12
	image.sb.XattrBlockAddr = 1
	return &Inode{image: image, format: InodeLayoutExtended}
}

func entryOf(kind uint8, name, value string) []byte {
	b := append([]byte{uint8(len(name)), kind, 0, 0}, name+value...)
	binary.LittleEndian.PutUint16(b[2:], uint16(len(value)))
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}

func area(shared []uint32, entries ...[]byte) []byte {
	b := make([]byte, xattrHeaderSize)
	b[4] = uint8(len(shared))
	for _, id := range shared {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	for _, e := range entries {
		b = append(b, e...)
	}
	return b
}

func TestXattrs(t *testing.T) {
	i := attributed(
		area([]uint32{2}, entryOf(1, "colour", "green"), entryOf(2, "", "an access control list"), entryOf(6, "capability", "\x01\x00")),
		append(make([]byte, 8), entryOf(4, "far", "away")...),
	)
	got := map[string]string{}
	if err := i.Xattrs(func(name string, value []byte) bool { got[name] = string(value); return true }); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"user.colour": "green", "security.capability": "\x01\x00", "trusted.far": "away"}; !maps.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// An image may be spoilt. What it says lies beyond it is not read.
func TestSpoiltXattrs(t *testing.T) {
	long := entryOf(1, "x", "y")
	long[2] = 200
	for name, i := range map[string]*Inode{
		"a value beyond the inode":    attributed(area(nil, long), nil),
		"more shared than there are":  attributed(area(nil), nil),
		"a shared one beyond the end": attributed(area([]uint32{1 << 30}), nil),
		"a shared one across the end": attributed(area([]uint32{0}), []byte{200, 1, 0, 0}),
		"attributes beyond the end":   attributed(make([]byte, 8000), nil),
	} {
		if name == "more shared than there are" {
			i.image.bytes[InodeExtendedSize+4] = 7
		}
		if err := i.Xattrs(func(string, []byte) bool { return true }); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
