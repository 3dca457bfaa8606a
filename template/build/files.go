package build

import (
	"archive/tar"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/bothy-dev/bothy/template/tree"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// keepLayer writes a step's changes into the cache.
func (j *job) keepLayer(path string, old, made *tree.Tree) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	err = errors.Join(made.WriteLayer(old, f), f.Close())
	if err == nil {
		err = j.b.cache.keep(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("keep a layer of the build: %w", err)
	}
	return nil
}

// copies is the version of how files are copied: layers made by an earlier version are not
// reused.
const copies = 2

// copyStep runs a COPY or an ADD.
func (j *job) copyStep(ctx context.Context, st *state, s Step, title string) (*state, error) {
	f := *s.Copy
	from, key := j.context, ""
	var src *state
	var err error
	if f.From != "" {
		if src, err = j.source(ctx, f.From); err != nil {
			return nil, atLine(s.Line, err)
		}
		key = src.key
	} else {
		j.sumsMu.Lock()
		key, err = j.sums.sources(from, f.Sources)
		j.sumsMu.Unlock()
		if err != nil {
			return nil, atLine(s.Line, err)
		}
	}
	named := f
	named.From = ""
	all := keyOf(s.Kind, copies, st.key, st.settings.Workdir, named, key)
	return j.cached(ctx, st, all, title, func(t *tree.Tree) (*tree.Tree, error) {
		if src != nil {
			var err error
			if from, err = src.tree(ctx); err != nil {
				return nil, err
			}
		}
		c := &copying{from: from, to: t, files: f, workdir: st.settings.Workdir, keepOwner: src != nil && !src.uploaded, now: time.Now().Truncate(time.Second)}
		if s.Kind == Add {
			c.unpack = func(n *tree.Node) (*tree.Tree, error) { return j.unpack(ctx, n) }
		}
		return t, atLine(s.Line, c.run())
	})
}

// unpack returns the content of an archive, or nil for any other file.
func (j *job) unpack(ctx context.Context, n *tree.Node) (*tree.Tree, error) {
	r, err := n.Data.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	plain, err := decompress(r)
	if err != nil {
		return nil, nil // it only looks like an archive
	}
	head := make([]byte, 512)
	if got, err := io.ReadFull(plain, head); err != nil {
		_ = got
		return nil, nil
	}
	if _, err := tar.NewReader(bytes.NewReader(append(head, make([]byte, 1024)...))).Next(); err != nil && !isLongHeader(head) {
		return nil, nil
	}
	f, err := os.CreateTemp(j.work, "archive-*")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	limit := int64(tree.MaxBytes)
	size, err := io.Copy(io.MultiWriter(j.b.guard(j.work), f), io.LimitReader(io.MultiReader(bytes.NewReader(head), plain), limit))
	if err == nil && size == limit {
		err = fmt.Errorf("it contains more than %d GB", limit>>30)
	}
	if err != nil {
		return nil, err
	}
	t := tree.New(time.Now())
	return t, t.Apply(ctx, f.Name(), tree.Plain, tree.NewBudget())
}

// isLongHeader reports whether a block is the header of an entry that describes the
// next one.
func isLongHeader(head []byte) bool {
	return bytes.Equal(head[257:262], []byte("ustar")) && bytes.ContainsAny(head[156:157], "xgLK")
}

// decompress detects the compression by the first bytes.
func decompress(r io.Reader) (io.Reader, error) {
	head := make([]byte, 6)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	all := io.MultiReader(bytes.NewReader(head[:n]), r)
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(all)
	case bytes.HasPrefix(head, []byte("BZh")):
		return bzip2.NewReader(all), nil
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		return xz.NewReader(all)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, err := zstd.NewReader(all)
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return all, nil
}
