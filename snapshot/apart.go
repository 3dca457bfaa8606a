package snapshot

import (
	"context"
	"io"
	"math"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/bothy-dev/bothy/internal/confined"
)

// Decompressing is a task that the program must serve: whoever imports an archive limits what it takes of the output.
var Decompressing = confined.Task{Name: "decompress a snapshot's archive", Memory: 256 << 20, Seconds: 1800, Output: math.MaxInt64,
	Run: func(_ context.Context, _ []string, in *os.File, out io.Writer) error {
		z, err := newDecoder(in)
		if err != nil {
			return err
		}
		defer z.Close()
		_, err = io.Copy(out, z)
		return err
	}}

func newDecoder(r io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(r, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
}

// decompress has a confined process decompress an archive, where the host allows it.
func decompress(ctx context.Context, r io.Reader) (io.ReadCloser, error) {
	if confined.Possible() {
		return Decompressing.Open(ctx, r)
	}
	z, err := newDecoder(r)
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}
