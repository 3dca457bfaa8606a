package bounded

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// The format is described at https://tukaani.org/xz/xz-file-format.txt. Of its filters only
// LZMA2 is supported. The xz package would allocate whatever dictionary a block asks for.

const xzMagic = "\xfd7zXZ\x00"

var errXZ = errors.New("the xz stream is damaged")

// xzReader reads the streams of an xz file. The checksums of blocks are verified, and the
// index, which repeats their sizes, is skipped.
type xzReader struct {
	r     *bufio.Reader
	check byte // the kind of checksum; in a stream only
	in    bool // a stream
	block *xzBlock
	// out counts the output, and dictionaries what blocks have allocated.
	out, dictionaries int64
	err               error
}

type xzBlock struct {
	data io.Reader
	in   *counter
	sum  hash.Hash // nil for none
}

func (x *xzReader) Read(p []byte) (n int, err error) {
	for x.err == nil && n == 0 && len(p) > 0 {
		if x.block == nil {
			x.err = x.next()
			continue
		}
		n, x.err = x.block.data.Read(p)
		x.out += int64(n)
		if x.block.sum != nil {
			x.block.sum.Write(p[:n])
		}
		if x.err == io.EOF {
			x.err = x.endBlock()
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, x.err
}

// full reads all of p. The end of the file is damage.
func (x *xzReader) full(p []byte) error {
	if _, err := io.ReadFull(x.r, p); err != nil {
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// next begins the next block, in the next stream if necessary.
func (x *xzReader) next() error {
	if !x.in {
		return x.stream()
	}
	size, err := x.r.ReadByte()
	if err != nil {
		return io.ErrUnexpectedEOF
	}
	if size == 0 {
		x.in = false
		return x.index()
	}
	head := make([]byte, (int(size)+1)*4)
	head[0] = size
	if err := x.full(head[1:]); err != nil {
		return err
	}
	return x.startBlock(head)
}

// stream reads the head of a stream, after padding. io.EOF means that there are no more.
func (x *xzReader) stream() error {
	var head [12]byte
	for {
		if _, err := io.ReadFull(x.r, head[:4]); err != nil {
			return err
		}
		if !bytes.Equal(head[:4], make([]byte, 4)) {
			break
		}
	}
	if err := x.full(head[4:]); err != nil {
		return err
	}
	flags := head[6:8]
	if string(head[:6]) != xzMagic || flags[0] != 0 || binary.LittleEndian.Uint32(head[8:]) != crc32.ChecksumIEEE(flags) {
		return errXZ
	}
	x.in, x.check = true, flags[1]
	_, err := x.hash()
	return err
}

func (x *xzReader) hash() (hash.Hash, error) {
	switch x.check {
	case 0:
		return nil, nil
	case 1:
		return crc32.NewIEEE(), nil
	case 4:
		return crc64.New(crc64.MakeTable(crc64.ECMA)), nil
	case 10:
		return sha256.New(), nil
	}
	return nil, fmt.Errorf("xz: checksums of kind %d are not supported", x.check)
}

// startBlock reads the head of a block.
func (x *xzReader) startBlock(head []byte) error {
	body, sum := head[:len(head)-4], head[len(head)-4:]
	if binary.LittleEndian.Uint32(sum) != crc32.ChecksumIEEE(body) {
		return errXZ
	}
	flags, rest := body[1], body[2:]
	size := uint64(MaxWindow) // of the content, if it is known
	for _, known := range []byte{0x40, 0x80} {
		if flags&known == 0 {
			continue
		}
		n := 0
		if size, n = binary.Uvarint(rest); n <= 0 {
			return errXZ
		}
		rest = rest[n:]
		if known == 0x40 {
			size = MaxWindow
		}
	}
	if flags&0x3f != 0 || len(rest) < 3 || rest[0] != 0x21 || rest[1] != 1 {
		return errors.New("xz: filters other than LZMA2 are not supported")
	}
	return x.openBlock(rest[2], size)
}

// openBlock allocates the dictionary of a block, no larger than its content.
func (x *xzReader) openBlock(code byte, size uint64) error {
	dictionary, err := lzma.DecodeDictCap(code)
	if err != nil {
		return errXZ
	}
	if dictionary > MaxWindow {
		return fmt.Errorf("xz: its dictionary has %w", &Error{MaxWindow, "bytes"})
	}
	dictionary = max(min(dictionary, int64(min(size, MaxWindow))), lzma.MinDictCap)
	if x.dictionaries += dictionary; x.dictionaries > MaxWindow+4*x.out {
		return fmt.Errorf("xz: the dictionaries of its blocks have %w", &Error{MaxWindow + 4*x.out, "bytes"})
	}
	sum, err := x.hash()
	if err != nil {
		return err
	}
	in := &counter{r: x.r}
	data, err := lzma.Reader2Config{DictCap: int(dictionary)}.NewReader2(in)
	if err != nil {
		return err
	}
	x.block = &xzBlock{data, in, sum}
	return nil
}

// endBlock reads what follows the data of a block.
func (x *xzReader) endBlock() error {
	b := x.block
	x.block = nil
	tail := make([]byte, -b.in.n&3, 64)
	padding := len(tail)
	if b.sum != nil {
		tail = tail[:padding+b.sum.Size()]
	}
	if err := x.full(tail); err != nil {
		return err
	}
	if b.sum == nil {
		return nil
	}
	want := b.sum.Sum(nil)
	if x.check != 10 { // numbers are little-endian
		for i, j := 0, len(want)-1; i < j; i, j = i+1, j-1 {
			want[i], want[j] = want[j], want[i]
		}
	}
	if !bytes.Equal(tail[padding:], want) {
		return errXZ
	}
	return nil
}

// index skips the index and the foot of a stream. The first byte of the index has been read.
func (x *xzReader) index() error {
	in := &byteCounter{r: x.r, n: 1}
	records, err := binary.ReadUvarint(in)
	for i := uint64(0); err == nil && i < records; i++ {
		if _, err = binary.ReadUvarint(in); err == nil {
			_, err = binary.ReadUvarint(in)
		}
	}
	if err != nil {
		return err
	}
	foot := make([]byte, -in.n&3+16) // padding, a checksum, and the foot
	if err := x.full(foot); err != nil {
		return err
	}
	if !bytes.HasSuffix(foot, []byte{0, x.check, 'Y', 'Z'}) {
		return errXZ
	}
	return nil
}

type byteCounter struct {
	r *bufio.Reader
	n int64
}

func (c *byteCounter) ReadByte() (byte, error) {
	c.n++
	b, err := c.r.ReadByte()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}
