package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/bothy-dev/bothy/internal/disk"
)

// A sparse file, such as the memory of a virtual machine, is mostly holes. The work is
// proportional to its data: holes are not read, not written and not counted.

// sparseBlock is the granularity in bytes at which sparse files are examined.
const sparseBlock = 64 << 10

// storedBytes is a file's size on disk.
func storedBytes(info os.FileInfo) int64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.Size()
	}
	return min(st.Blocks*512, info.Size())
}

// sumSparse computes the checksums of a sparse file. The CRC covers the whole file. The SHA-256
// covers each block that is not all zeros, preceded by its number as 8 bytes, little-endian, so
// that it does not depend on where the holes are.
func sumSparse(ctx context.Context, dir string, p Part, strong bool) (Part, error) {
	f, err := os.Open(filepath.Join(dir, p.Name))
	if err != nil {
		return Part{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Part{}, err
	}
	p.Size, p.Stored = info.Size(), storedBytes(info)
	var crc uint32
	var done int64 // how much the CRC covers
	sha := sha256.New()
	buf := make([]byte, sparseBlock)
	for from, to := int64(0), int64(0); ; from = to {
		if from, to, err = nextData(f, from, p.Size); err != nil {
			return Part{}, err
		}
		if from >= p.Size {
			break
		}
		crc, done = zerosCRC(crc, from-done), from
		for ; done < to; done += int64(len(buf)) {
			if err := ctx.Err(); err != nil {
				return Part{}, err
			}
			buf = buf[:min(sparseBlock, p.Size-done)]
			if _, err := f.ReadAt(buf, done); err != nil {
				return Part{}, fmt.Errorf("read %s: %w", p.Name, err)
			}
			crc = crc32.Update(crc, castagnoli, buf)
			if strong && !zeros(buf) {
				sha.Write(binary.LittleEndian.AppendUint64(nil, uint64(done/sparseBlock)))
				sha.Write(buf)
			}
		}
	}
	crc = zerosCRC(crc, p.Size-done)
	p.CRC32C = hex.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
	if strong {
		p.SHA256 = hex.EncodeToString(sha.Sum(nil))
	}
	return p, nil
}

// nextData returns the next blocks with data at or after from, which must be the start of a
// block. If there are none it returns size.
func nextData(f *os.File, from, size int64) (begin, end int64, err error) {
	begin, end, err = disk.NextData(f, from, size)
	if err != nil || begin == size {
		return begin, end, err
	}
	begin = max(from, begin/sparseBlock*sparseBlock)
	return begin, min(size, (end+sparseBlock-1)/sparseBlock*sparseBlock), nil
}

var zeroBlock [sparseBlock]byte

func zeros(b []byte) bool { return bytes.Equal(b, zeroBlock[:len(b)]) }

// writeSparse writes r to a file, with holes for blocks of zeros, as far as the room allows.
func writeSparse(path string, r io.Reader, room Room) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var at int64
	buf := make([]byte, sparseBlock)
	for err == nil {
		var n int
		n, err = io.ReadFull(r, buf)
		if n > 0 && !zeros(buf[:n]) {
			failed := room.Take(int64(n))
			if failed == nil {
				_, failed = f.WriteAt(buf[:n], at)
			}
			if failed != nil {
				return errors.Join(failed, f.Close())
			}
		}
		at += int64(n)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = f.Truncate(at)
	}
	return errors.Join(err, f.Close())
}

// A CRC is a linear function of its register: the effect of a zero byte is a matrix
// over bits, and the effect of n of them is its n-th power.

type bitMatrix [32]uint32

func (m *bitMatrix) times(v uint32) (sum uint32) {
	for i := 0; v != 0; i, v = i+1, v>>1 {
		if v&1 != 0 {
			sum ^= m[i]
		}
	}
	return sum
}

// zeroPowers are the matrices for 1, 2, 4, … bytes.
var zeroPowers = sync.OnceValue(func() *[63]bitMatrix {
	var powers [63]bitMatrix
	for i := range powers[0] {
		register := uint32(1) << i
		powers[0][i] = castagnoli[byte(register)] ^ register>>8
	}
	for k := 1; k < len(powers); k++ {
		for i := range powers[k] {
			powers[k][i] = powers[k-1].times(powers[k-1][i])
		}
	}
	return &powers
})

// zerosCRC continues a CRC over n zero bytes.
func zerosCRC(crc uint32, n int64) uint32 {
	register := ^crc
	for k := 0; n > 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			register = zeroPowers()[k].times(register)
		}
	}
	return ^register
}
