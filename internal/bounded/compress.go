package bounded

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/bothy-dev/bothy"
)

const (
	// MaxWindow limits the memory for what a stream refers back to. The highest levels of xz
	// need it.
	MaxWindow = 64 << 20
	// maxRatio is how much longer than its input the output may be, after the first of it. It is
	// beyond what gzip can do with a file of zeros.
	maxRatio, freeOutput = 2000, 64 << 20
)

// Decompress returns the content of r, which may be compressed with gzip, bzip2, xz or zstd.
// It may have at most n bytes, and be at most 2,000 times as long as it is compressed. Close
// releases memory; it does not close r.
func Decompress(ctx context.Context, r io.Reader, n int64) (io.ReadCloser, error) {
	in := &counter{r: alive{ctx, r}}
	buf := bufio.NewReaderSize(in, 64<<10)
	head, err := buf.Peek(6)
	if err != nil && err != io.EOF {
		return nil, err
	}
	d := &decompressed{end: func() {}}
	if err := d.open(ctx, head, buf, in); err != nil {
		d.end()
		return nil, err
	}
	d.Reader = Reader(ctx, d.Reader, n)
	return d, nil
}

// Compressed reports whether Decompress decompresses what begins with head, of 6 bytes.
func Compressed(head []byte) bool {
	for _, magic := range []string{gzipMagic, bzip2Magic, xzMagic, zstdMagic} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return true
		}
	}
	return false
}

const gzipMagic, bzip2Magic, zstdMagic = "\x1f\x8b", "BZh", "\x28\xb5\x2f\xfd"

// Gunzip returns the content of r, which is compressed with gzip and may have at most n bytes.
// Nothing is read before the first Read.
func Gunzip(ctx context.Context, r io.Reader, n int64) io.Reader {
	return Reader(ctx, &gunzip{r: alive{ctx, r}}, n)
}

type gunzip struct {
	r io.Reader
	z *gzip.Reader
}

func (g *gunzip) Read(p []byte) (n int, err error) {
	if g.z == nil {
		if g.z, err = gzip.NewReader(g.r); err != nil {
			return 0, err
		}
	}
	return g.z.Read(p)
}

type decompressed struct {
	io.Reader
	end func()
}

func (d *decompressed) Close() error {
	d.end()
	d.end = func() {}
	return nil
}

func (d *decompressed) open(ctx context.Context, head []byte, r *bufio.Reader, in *counter) (err error) {
	var plain io.Reader
	switch {
	case bytes.HasPrefix(head, []byte(gzipMagic)):
		plain, err = gzip.NewReader(r)
	case bytes.HasPrefix(head, []byte(bzip2Magic)):
		plain = bzip2.NewReader(r)
	case bytes.HasPrefix(head, []byte(xzMagic)):
		plain, err = &xzReader{r: r}, d.hold(ctx)
	case bytes.HasPrefix(head, []byte(zstdMagic)):
		plain, err = d.zstd(ctx, r)
	default:
		d.Reader = r
		return nil
	}
	d.Reader = &ratio{r: plain, in: in}
	return err
}

// hold takes the memory for a window until d is closed.
func (d *decompressed) hold(ctx context.Context) error {
	if err := bothy.TakeMemory(ctx, MaxWindow); err != nil {
		return err
	}
	d.end = func() { bothy.GiveMemory(ctx, MaxWindow) }
	return nil
}

func (d *decompressed) zstd(ctx context.Context, r io.Reader) (io.Reader, error) {
	if err := d.hold(ctx); err != nil {
		return nil, err
	}
	z, err := zstd.NewReader(r, zstd.WithDecoderMaxWindow(MaxWindow), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	give := d.end
	d.end = func() { z.Close(); give() }
	return z, nil
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
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		err = &Error{MaxWindow, "bytes in its window"}
	}
	return n, err
}
