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
	"syscall"

	"github.com/klauspost/compress/zstd"

	"github.com/bothy-dev/bothy/internal/disk"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

// buffers holds buffers of chunkSize.
var buffers = sync.Pool{New: func() any { b := make([]byte, chunkSize); return &b }}

var encoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(chunksAtOnce), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // its options are constant
	}
	return e
})

// upload uploads the tree in dir and returns its index once that is stored. It reuses the
// chunks of an interrupted upload, so it may be repeated at any time. With replace, it writes
// everything again, also the index.
func (b *Bucket) upload(ctx context.Context, kind, name, dir string, replace bool) (*index, []byte, error) {
	if err := failpoint.Hit("s3.upload"); err != nil {
		return nil, nil, err
	}
	var there map[string]int64
	if !replace {
		var err error
		if there, err = b.list(ctx, b.key(kind, name)+"/"); err != nil {
			return nil, nil, err
		}
	}
	i, err := scan(dir)
	if err != nil {
		return nil, nil, err
	}
	for n := range i.Files {
		if err := b.uploadFile(ctx, kind, name, dir, &i.Files[n], there); err != nil {
			return nil, nil, err
		}
	}
	if err := b.compareSizes(ctx, kind, name, i); err != nil {
		return nil, nil, err
	}
	if err := failpoint.Hit("s3.commit"); err != nil {
		return nil, nil, err
	}
	text, err := i.encode()
	if err != nil {
		return nil, nil, err
	}
	err = b.put(ctx, b.key(kind, name, indexName), text, !replace)
	if errors.Is(err, fs.ErrExist) {
		return b.sameTree(ctx, kind, name, i)
	}
	if err == nil {
		err = b.compareIndex(ctx, kind, name, text)
	}
	if err != nil {
		return nil, nil, err
	}
	return i, text, failpoint.Hit("s3.committed")
}

// sameTree accepts an existing tree if it has the same files.
func (b *Bucket) sameTree(ctx context.Context, kind, name string, want *index) (*index, []byte, error) {
	got, text, err := b.index(ctx, kind, name)
	if err != nil {
		return nil, nil, err
	}
	if !got.sameFiles(want) {
		return nil, nil, fmt.Errorf("%s already exists in %s with different files: %w", name, b.Location, fs.ErrExist)
	}
	return got, text, nil
}

// sameFiles compares the contents of files. How chunks are stored may differ.
func (i *index) sameFiles(o *index) bool {
	if len(i.Files) != len(o.Files) {
		return false
	}
	for n, f := range i.Files {
		g := o.Files[n]
		if f.Name != g.Name || f.Size != g.Size || len(f.Chunks) != len(g.Chunks) || !bytes.Equal(f.Data, g.Data) {
			return false
		}
		for k, c := range f.Chunks {
			if d := g.Chunks[k]; c.At != d.At || c.SHA256 != d.SHA256 {
				return false
			}
		}
	}
	return true
}

// compareSizes returns an error if the storage lacks chunks that it has accepted.
func (b *Bucket) compareSizes(ctx context.Context, kind, name string, i *index) error {
	there, err := b.list(ctx, b.key(kind, name)+"/")
	if err != nil {
		return err
	}
	for _, f := range i.Files {
		for _, c := range f.Chunks {
			if size, ok := there[c.object()]; !ok || size != c.Stored {
				return fmt.Errorf("%w: it accepted %s of %s, but lists %d bytes of it instead of %d", ErrUnavailable, c.object(), name, size, c.Stored)
			}
		}
	}
	return nil
}

// compareIndex returns an error if the storage lacks an index that it has accepted.
func (b *Bucket) compareIndex(ctx context.Context, kind, name string, text []byte) error {
	got, err := b.get(ctx, b.key(kind, name, indexName), maxIndexBytes, int64(len(text)))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Equal(got, text) {
		return fmt.Errorf("%w: it accepted the index of %s, but does not return what was sent", ErrUnavailable, name)
	}
	return err
}

// scan lists the files in a folder, with the contents of small ones.
func scan(dir string) (*index, error) {
	i := &index{Version: indexVersion}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			i.Folders = append(i.Folders, folder{name, info.Mode().Perm()})
			return nil
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is not a regular file", path)
		}
		f := file{Name: name, Mode: info.Mode().Perm(), Size: info.Size()}
		if f.Size <= inlineBytes {
			f.Data, err = os.ReadFile(path)
		} else if st, ok := info.Sys().(*syscall.Stat_t); ok {
			f.Sparse = st.Blocks*512+inlineBytes < f.Size
		}
		i.Files = append(i.Files, f)
		return err
	})
	return i, err
}

// uploadFile uploads the missing chunks of a file concurrently.
func (b *Bucket) uploadFile(ctx context.Context, kind, name, dir string, f *file, there map[string]int64) error {
	if f.Size <= inlineBytes {
		return nil
	}
	r, err := os.Open(filepath.Join(dir, f.Name))
	if err != nil {
		return err
	}
	defer r.Close()
	chunks, err := f.pieces(r)
	if err != nil {
		return err
	}
	err = b.each(ctx, chunks, func(ctx context.Context, c *chunk) error {
		return b.uploadChunk(ctx, b.key(kind, name)+"/", r, c, there)
	})
	f.Chunks = chunks
	return err
}

// pieces cuts a file into chunks. In a sparse file, chunks without data are omitted.
func (f *file) pieces(r *os.File) (chunks []chunk, err error) {
	for at := int64(0); at < f.Size; at += chunkSize {
		size := min(chunkSize, f.Size-at)
		if f.Sparse {
			data, _, err := disk.NextData(r, at, f.Size)
			if err != nil {
				return nil, err
			}
			if data >= at+size {
				continue
			}
		}
		chunks = append(chunks, chunk{At: at, Size: size})
	}
	return chunks, nil
}

func (b *Bucket) uploadChunk(ctx context.Context, prefix string, r *os.File, c *chunk, there map[string]int64) error {
	return c.read(r, func(data []byte) error {
		if size, ok := there[c.object()]; ok && size == c.Stored {
			return nil
		}
		if err := b.put(ctx, prefix+c.object(), data, false); err != nil {
			return err
		}
		return failpoint.Hit("s3.chunk")
	})
}

// read reads a chunk's bytes from its file, completes its description, and calls do with the
// content of its object.
func (c *chunk) read(r *os.File, do func(data []byte) error) error {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	data := (*buf)[:c.Size]
	if _, err := r.ReadAt(data, c.At); err != nil {
		return fmt.Errorf("read %s: %w", r.Name(), err)
	}
	sum := sha256.Sum256(data)
	c.SHA256, c.Stored, c.Zstd = hex.EncodeToString(sum[:]), c.Size, false
	packed := buffers.Get().(*[]byte)
	defer buffers.Put(packed)
	// Savings of less than an eighth are not worth decompressing.
	if small := encoder().EncodeAll(data, (*packed)[:0]); int64(len(small)) < c.Size-c.Size/8 {
		data, c.Stored, c.Zstd = small, int64(len(small)), true
	}
	return do(data)
}

// each calls do for every chunk, several at once, until one fails.
func (b *Bucket) each(ctx context.Context, chunks []chunk, do func(context.Context, *chunk) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	for n := range chunks {
		select {
		case b.slots <- struct{}{}:
			all.Go(func() {
				defer func() { <-b.slots }()
				if ctx.Err() != nil {
					return
				}
				if err := do(ctx, &chunks[n]); err != nil {
					stop(err)
				}
			})
		case <-ctx.Done():
		}
	}
	all.Wait()
	return context.Cause(ctx)
}
