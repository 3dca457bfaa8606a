package engine

import (
	"bytes"
	"errors"
	"os"

	"github.com/bothy-dev/bothy"
)

// FilesTar is the file that the tar of a machine's files is written to, by the machine itself.
// The tar stores the holes of sparse files as zeros, and a single system call lets a sandbox
// make a hole of terabytes. Zeros therefore become holes again, and a tar larger than a machine
// of its size could need is refused.
type FilesTar struct {
	f     *os.File
	most  int64
	at    int64  // of the current block
	block []byte // zeros not yet written
}

// tarBlock is the unit in which zeros become holes.
const tarBlock = 64 << 10

var zeroBlock [tarBlock]byte

// CreateFilesTar makes the file for a machine with such limits.
func CreateFilesTar(path string, l bothy.Limits) (*FilesTar, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return &FilesTar{f: f, most: MostFilesTar(l), block: make([]byte, 0, tarBlock)}, nil
}

// MostFilesTar is the largest size of such a tar: the disk's size, as much again for holes, and
// a header for each file that fits into memory.
func MostFilesTar(l bothy.Limits) int64 { return int64(2*l.DiskMB+l.MemoryMB+256) << 20 }

// Write implements io.Writer.
func (t *FilesTar) Write(b []byte) (int, error) {
	if int64(len(b)) > t.most-t.at-int64(len(t.block)) {
		return 0, bothy.Errorf(bothy.CodeUnsupported, "the files of the sandbox, including the holes of sparse files, exceed the %d MB that a snapshot of it can hold", t.most>>20).
			WithHint("Remove or shrink large sparse files; `du -a --apparent-size / | sort -n` shows them.")
	}
	done := len(b)
	for len(b) > 0 {
		n := min(len(b), tarBlock-len(t.block))
		t.block, b = append(t.block, b[:n]...), b[n:]
		if len(t.block) < tarBlock {
			break
		}
		if err := t.flush(); err != nil {
			return 0, err
		}
	}
	return done, nil
}

func (t *FilesTar) flush() error {
	if !bytes.Equal(t.block, zeroBlock[:len(t.block)]) {
		if _, err := t.f.WriteAt(t.block, t.at); err != nil {
			return err
		}
	}
	t.at += int64(len(t.block))
	t.block = t.block[:0]
	return nil
}

// Close writes the rest. If it is not called, or fails, the file is incomplete.
func (t *FilesTar) Close() error {
	err := t.flush()
	if err == nil {
		err = t.f.Truncate(t.at)
	}
	return errors.Join(err, t.f.Close())
}
