package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/bothy-dev/bothy/internal/disk"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(chunksAtOnce), zstd.WithDecoderMaxMemory(chunkSize))
	if err != nil {
		panic(err) // its options are constant
	}
	return d
})

// download writes the files of a tree into dir and verifies the checksum of each chunk.
func (b *Bucket) download(ctx context.Context, kind, name string, i *index, dir string, guard *disk.Guard) error {
	for _, d := range i.Folders {
		if err := os.MkdirAll(filepath.Join(dir, d.Name), d.Mode); err != nil {
			return err
		}
	}
	for n := range i.Files {
		if err := b.downloadFile(ctx, kind, name, &i.Files[n], dir, guard); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bucket) downloadFile(ctx context.Context, kind, name string, f *file, dir string, guard *disk.Guard) error {
	w, err := os.OpenFile(filepath.Join(dir, f.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, f.Mode)
	if err != nil {
		return err
	}
	if f.Size <= inlineBytes {
		_, err = w.Write(f.Data)
	} else if err = w.Truncate(f.Size); err == nil {
		var mu sync.Mutex
		err = b.each(ctx, f.Chunks, func(ctx context.Context, c *chunk) error {
			mu.Lock()
			err := guard.Look()
			mu.Unlock()
			if err != nil {
				return err
			}
			return b.downloadChunk(ctx, kind, name, f, c, w)
		})
	}
	return errors.Join(err, w.Close())
}

func (b *Bucket) downloadChunk(ctx context.Context, kind, name string, f *file, c *chunk, w *os.File) error {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	data, err := b.chunkTwice(ctx, kind, name, c, *buf)
	if errors.Is(err, fs.ErrNotExist) {
		return damaged(name, "a chunk of %s is missing", f.Name).Because(err)
	}
	if err != nil {
		return err
	}
	if err := writeData(w, data, c.At, f.Sparse); err != nil {
		return err
	}
	return failpoint.Hit("s3.fetched")
}

// chunkTwice is chunk with a second attempt, which gets over errors of transmission.
func (b *Bucket) chunkTwice(ctx context.Context, kind, name string, c *chunk, buf []byte) ([]byte, error) {
	data, err := b.chunk(ctx, kind, name, c, buf)
	if err != nil && ctx.Err() == nil {
		data, err = b.chunk(ctx, kind, name, c, buf)
	}
	return data, err
}

// chunk reads a chunk and verifies its checksum.
func (b *Bucket) chunk(ctx context.Context, kind, name string, c *chunk, buf []byte) ([]byte, error) {
	data, err := b.get(ctx, b.key(kind, name, c.object()), c.Size, c.Stored)
	if err != nil {
		return nil, err
	}
	if c.Zstd {
		if data, err = decoder().DecodeAll(data, buf[:0]); err != nil {
			return nil, damaged(name, "a chunk of it cannot be decompressed").Because(err)
		}
	}
	if sum := sha256.Sum256(data); int64(len(data)) != c.Size || hex.EncodeToString(sum[:]) != c.SHA256 {
		return nil, damaged(name, "the checksum of a chunk is wrong").Because(fmt.Errorf("%s", c.object()))
	}
	return data, nil
}

// holeSize is the granularity of holes in sparse files.
const holeSize = 64 << 10

var zeros [holeSize]byte

// writeData writes a chunk. In a sparse file it leaves holes for zeros.
func writeData(w *os.File, data []byte, at int64, sparse bool) error {
	if !sparse {
		_, err := w.WriteAt(data, at)
		return err
	}
	for len(data) > 0 {
		block := data[:min(holeSize, len(data))]
		if !bytes.Equal(block, zeros[:len(block)]) {
			if _, err := w.WriteAt(block, at); err != nil {
				return err
			}
		}
		data, at = data[len(block):], at+int64(len(block))
	}
	return nil
}
