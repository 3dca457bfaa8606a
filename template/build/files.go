package build

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
	"github.com/bothy-dev/bothy/internal/disk"
	"github.com/bothy-dev/bothy/template/apart"
	"github.com/bothy-dev/bothy/template/tree"
)

// keepLayer writes a step's changes into the cache.
func (j *job) keepLayer(path string, old, made *tree.Tree) error {
	f, err := j.b.cache.create(path)
	if err != nil {
		return err
	}
	out := disk.NewSparse(f)
	err = errors.Join(made.WriteLayer(old, j.toCache(out)), out.Finish(), f.Close())
	if err == nil {
		err = j.hold.keep(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("keep a layer of the build: %w", err)
	}
	return nil
}

// toCache writes to a file of the cache, within what the disk and the project have left.
func (j *job) toCache(f io.Writer) io.Writer {
	return io.MultiWriter(j.b.guard(j.b.cache.dir), &share{j.hold.left()}, f)
}

// copies is the version of how files are copied: layers made by an earlier version are not
// reused.
const copies = 4

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
		list, err := f.from(ctx, from)
		if err == nil {
			j.sumsMu.Lock()
			key, err = j.sums.sources(ctx, list)
			j.sumsMu.Unlock()
		}
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
		c := &copying{ctx: ctx, from: from, to: t, files: f, workdir: st.settings.Workdir, keepOwner: src != nil && !src.uploaded, now: time.Now().Truncate(time.Second)}
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
	plain, err := apart.Decompress(ctx, r, tree.MaxBytes)
	if err != nil {
		return nil, notArchive(err)
	}
	defer plain.Close()
	head := make([]byte, 512)
	if _, err := io.ReadFull(plain, head); err != nil {
		return nil, notArchive(err)
	}
	if !isTar(head) {
		return nil, nil
	}
	f, err := os.CreateTemp(j.work, "archive-*")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := io.Copy(io.MultiWriter(j.b.guard(j.work), f), io.MultiReader(bytes.NewReader(head), plain)); err != nil {
		return nil, err
	}
	t := tree.New(time.Now())
	return t, t.ApplyFrom(ctx, apart.List, f.Name(), tree.Plain, tree.NewBudget())
}

// notArchive returns nil for a file that only looks like an archive, but not if it asks for too
// much.
func notArchive(err error) error {
	var limit *bounded.Error
	var refused *bothy.Error
	if errors.As(err, &limit) || errors.As(err, &refused) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// isTar reports whether a block is the header of an entry.
func isTar(head []byte) bool {
	found := isLongHeader(head)
	in := bytes.NewReader(append(bytes.Clone(head), make([]byte, 1024)...))
	_ = bounded.Tar(context.Background(), in, 1, func(*tar.Header, io.Reader) error { // its content is missing
		found = true
		return nil
	})
	return found
}

// isLongHeader reports whether a block is the header of an entry that describes the
// next one.
func isLongHeader(head []byte) bool {
	return bytes.Equal(head[257:262], []byte("ustar")) && bytes.ContainsAny(head[156:157], "xgLK")
}
