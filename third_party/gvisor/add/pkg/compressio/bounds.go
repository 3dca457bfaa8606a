package compressio

import (
	"errors"
	"fmt"
	"io"
)

const (
	// maxChunkSize bounds the chunks of a compressed stream. Those of checkpoints have 1 MB.
	maxChunkSize = 8 << 20

	// maxRatio is the largest ratio of uncompressed to compressed size that is accepted.
	maxRatio = 16
)

// errChunkSize is the error for a chunk larger than the stream's header says.
var errChunkSize = errors.New("a compressed chunk is larger than the stream says")

// checkChunkSize checks the chunk size in a stream's header, which is the memory that a chunk takes.
func (r *Reader) checkChunkSize() error {
	if r.chunkSize == 0 || r.chunkSize > maxChunkSize {
		return fmt.Errorf("compressed chunks of %d bytes, at most %d are allowed", r.chunkSize, maxChunkSize)
	}
	return nil
}

// checkLength checks the compressed length of a chunk. Incompressible data becomes a little
// longer.
func (r *Reader) checkLength(l uint32) error {
	if bound := r.chunkSize + r.chunkSize/8 + 1<<10; l > bound {
		return fmt.Errorf("a compressed chunk has %d bytes, at most %d are allowed", l, bound)
	}
	return nil
}

// decompress reads r into c, at most one chunk.
func (c *chunk) decompress(r io.Reader) error {
	n, err := io.Copy(c.uncompressed, io.LimitReader(r, c.limit+1))
	if err == nil && n > c.limit {
		err = errChunkSize
	}
	return err
}

// Source returns the underlying reader, and the largest ratio by which its data can expand.
func (r *Reader) Source() (any, int64) { return r.in, maxRatio }

// Source returns the underlying reader, and the largest ratio by which its data can expand.
func (r *SimpleReader) Source() (any, int64) { return r.source, 1 }
