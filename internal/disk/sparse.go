package disk

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// sparseBlock is the size of what may be a hole.
const sparseBlock = 64 << 10

var zeroBlock [sparseBlock]byte

// Sparse writes a new file from its beginning, and leaves holes where whole blocks are zero. Call
// Finish at the end.
type Sparse struct {
	f  *os.File
	at int64
	// Moved, if set, is told how much of the file is there.
	Moved func(at int64)
}

// NewSparse writes to an empty file.
func NewSparse(f *os.File) *Sparse { return &Sparse{f: f} }

// Write implements io.Writer.
func (s *Sparse) Write(p []byte) (int, error) {
	for left := p; len(left) > 0; {
		n := s.zeros(left)
		if n == 0 {
			if n = s.data(left); n > 0 {
				if _, err := s.f.WriteAt(left[:n], s.at); err != nil {
					return len(p) - len(left), err
				}
			}
		}
		s.at, left = s.at+int64(n), left[n:]
	}
	s.moved()
	return len(p), nil
}

func (s *Sparse) moved() {
	if s.Moved != nil {
		s.Moved(s.at)
	}
}

// zeros is the length of the blocks of zeros that text begins with.
func (s *Sparse) zeros(text []byte) (n int) {
	if s.at%sparseBlock != 0 {
		return 0
	}
	for len(text) >= n+sparseBlock && bytes.Equal(text[n:n+sparseBlock], zeroBlock[:]) {
		n += sparseBlock
	}
	return n
}

// data is the length of what text has before the next block of zeros.
func (s *Sparse) data(text []byte) int {
	n := int((sparseBlock - s.at%sparseBlock) % sparseBlock)
	for len(text) >= n+sparseBlock && !bytes.Equal(text[n:n+sparseBlock], zeroBlock[:]) {
		n += sparseBlock
	}
	if len(text) < n+sparseBlock {
		return len(text)
	}
	return n
}

// NextData returns the next part of a file that is not a hole, from an offset on and before end. If
// there is none it returns end twice. Where a file system does not support holes, all is data.
func NextData(f *os.File, from, end int64) (begin, next int64, err error) {
	if from >= end {
		return end, end, nil
	}
	begin, err = unix.Seek(int(f.Fd()), from, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return end, end, nil
	case errors.Is(err, unix.EINVAL):
		return from, end, nil
	case err != nil:
		return 0, 0, err
	case begin >= end:
		return end, end, nil
	}
	next, err = unix.Seek(int(f.Fd()), begin, unix.SEEK_HOLE)
	return begin, min(next, end), err
}

// CopyRange copies a part of another file, if possible in the kernel and without reading its holes.
func (s *Sparse) CopyRange(from *os.File, offset, size int64) error {
	end := offset + size
	if info, err := from.Stat(); err != nil || info.Size() < end {
		return cmp.Or(err, io.ErrUnexpectedEOF)
	}
	for offset < end {
		data, next, err := NextData(from, offset, end)
		if err != nil {
			return err
		}
		s.at += data - offset
		if offset = data; offset == end {
			break
		}
		n := next - offset
		if _, err := from.Seek(offset, io.SeekStart); err != nil {
			return err
		}
		if _, err := s.f.Seek(s.at, io.SeekStart); err != nil {
			return err
		}
		copied, err := s.f.ReadFrom(io.LimitReader(from, n))
		if err == nil && copied < n {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		s.at, offset = s.at+n, offset+n
		s.moved()
	}
	s.moved()
	return nil
}

// Finish gives the file its size.
func (s *Sparse) Finish() error {
	s.moved()
	info, err := s.f.Stat()
	if err == nil && info.Size() < s.at {
		err = s.f.Truncate(s.at)
	}
	return err
}
