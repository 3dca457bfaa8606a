package bounded

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

const (
	// MaxWindow limits the memory for what a stream refers back to. The highest levels of xz
	// need it.
	MaxWindow = 64 << 20
	// maxRatio is how much longer than its input the output may be, after the first of it:
	// files of zeros are common and small.
	maxRatio, freeOutput = 1000, 64 << 20
)

// Decompress returns the content of r, which may be compressed with gzip, bzip2, xz or zstd.
// It may have at most n bytes, and be at most 1,000 times as long as it is compressed. Close
// releases memory; it does not close r.
func Decompress(ctx context.Context, r io.Reader, n int64) (io.ReadCloser, error) {
	in := &counter{r: alive{ctx, r}}
	buf := bufio.NewReaderSize(in, 64<<10)
	head, err := buf.Peek(6)
	if err != nil && err != io.EOF {
		return nil, err
	}
	plain, end, err := decoder(head, buf)
	if err != nil {
		return nil, err
	}
	if plain == io.Reader(buf) {
		return &decompressed{Reader: Reader(ctx, buf, n), end: end}, nil
	}
	return &decompressed{Reader: Reader(ctx, &ratio{r: plain, in: in}, n), end: end}, nil
}

func decoder(head []byte, r *bufio.Reader) (io.Reader, func(), error) {
	none := func() {}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(r)
		return z, none, err
	case bytes.HasPrefix(head, []byte("BZh")):
		return bzip2.NewReader(r), none, nil
	case bytes.HasPrefix(head, []byte(xzMagic)):
		return &xzReader{r: r}, none, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(r, zstd.WithDecoderMaxWindow(MaxWindow), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, none, err
		}
		return z, z.Close, nil
	}
	return r, none, nil
}

type decompressed struct {
	io.Reader
	end func()
}

func (d *decompressed) Close() error {
	d.end()
	return nil
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// ratio fails when there is much more output than input.
type ratio struct {
	r   io.Reader
	in  *counter
	out int64
}

func (r *ratio) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if r.out += int64(n); r.out > freeOutput && r.out > maxRatio*r.in.n {
		return 0, fmt.Errorf("%d bytes expand to %w", r.in.n, &Error{r.out - 1, "bytes"})
	}
	return n, err
}
