package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Tree names a tree in the bucket.
type Tree struct{ Kind, Name string }

// Scrub says what to verify, and how.
type Scrub struct {
	// Trees are those that the records place in the bucket.
	Trees []Tree
	// Named reports whether the records still do, so that nothing is restored that was deleted
	// meanwhile.
	Named func(ctx context.Context, t Tree) (bool, error)
	// Pace is called with the size of each piece before it is read, and may wait.
	Pace func(ctx context.Context, bytes int64) error
}

// Scrub reads every piece of trees in the bucket and compares its checksum. What is wrong or
// missing is written again, if there is a copy; nothing is deleted. It ends early if the storage
// is unavailable.
func (b *Bucket) Scrub(ctx context.Context, s Scrub) error {
	var errs []error
	for _, t := range s.Trees {
		if err := b.Usable(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		err := b.scrubTree(ctx, s, t)
		if errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
			return errors.Join(append(errs, err)...)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("verify %s/%s: %w", t.Kind, t.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (b *Bucket) scrubTree(ctx context.Context, s Scrub, t Tree) error {
	if err := s.Pace(ctx, inlineBytes); err != nil {
		return err
	}
	r := b.repair(t.Kind, t.Name)
	defer r.report()
	i, text, err := b.index(ctx, t.Kind, t.Name)
	b.count(t.Kind, Counts{Checked: 1})
	lacking := isDamage(err)
	if lacking {
		if named, err := s.Named(ctx, t); err != nil || !named {
			return err
		}
		i, text, err = r.index(ctx, err)
	}
	if isDamage(err) {
		return nil // reported
	}
	if err != nil {
		return err
	}
	for n := range i.Files {
		f := &i.Files[n]
		for k := range f.Chunks {
			if err := b.scrubChunk(ctx, s, r, f, &f.Chunks[k]); err != nil {
				return err
			}
		}
	}
	// Last, as in an upload: it makes the tree visible.
	if lacking {
		if named, err := s.Named(ctx, t); err != nil || !named {
			return err
		}
		r.putIndex(ctx, text)
	}
	return nil
}

func (b *Bucket) scrubChunk(ctx context.Context, s Scrub, r *repair, f *file, c *chunk) error {
	if err := s.Pace(ctx, c.Stored); err != nil {
		return err
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	_, err := b.chunkTwice(ctx, r.Kind, r.Name, c, *buf)
	b.count(r.Kind, Counts{Checked: 1})
	if err == nil || !isDamage(err) || ctx.Err() != nil {
		return err
	}
	if named, err := s.Named(ctx, Tree{r.Kind, r.Name}); err != nil || !named {
		return err
	}
	// If there is no copy, it is reported.
	if _, err := r.chunk(ctx, f, c); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
