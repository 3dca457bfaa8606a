package compressio

import (
	"errors"
	"fmt"
	"io"
)

const (
	// maxChunkSize bounds the chunks of a compressed stream. Those of checkpoints have 1 MB.
	maxChunkSize = 8 << 20

	// maxRatio is how many times its own size a compressed stream may say that it has.
	maxRatio = 16
)

// errChunkSize is for a chunk that has more in it than the stream's first bytes say.
var errChunkSize = errors.New("a compressed chunk is larger than the stream says")

// checkChunkSize checks what a stream says of its chunks: so much memory each of them takes.
func (r *Reader) checkChunkSize() error {
	if r.chunkSize == 0 || r.chunkSize > maxChunkSize {
		return fmt.Errorf("compressed chunks of %d bytes, at most %d are allowed", r.chunkSize, maxChunkSize)
	}
	return nil
}

// checkLength checks how many bytes a compressed chunk takes in the stream. What cannot be
// compressed becomes a little longer.
func (r *Reader) checkLength(l uint32) error {
	if bound := r.chunkSize + r.chunkSize/8 + 1<<10; l > bound {
		return fmt.Errorf("a compressed chunk has %d bytes, at most %d are allowed", l, bound)
	}
	return nil
}

// decompress writes to c what is in r, no more than a chunk.
func (c *chunk) decompress(r io.Reader) error {
	n, err := io.Copy(c.uncompressed, io.LimitReader(r, c.limit+1))
	if err == nil && n > c.limit {
		err = errChunkSize
	}
	return err
}

// Source returns what the data is read from, and how often its size at most comes of it.
func (r *Reader) Source() (any, int64) { return r.in, maxRatio }

// Source returns what the data is read from, and how often its size at most comes of it.
func (r *SimpleReader) Source() (any, int64) { return r.source, 1 }
