package s3

import (
	"context"
	"errors"
	"io/fs"

	"github.com/bothy-dev/bothy/internal/disk"
)

// PutTree stores the files of a folder as a tree, completely or not at all. If the name exists,
// its tree stays: the caller ensures that a name always has the same contents, and that the files
// are intact, since from then on they are the truth.
func (b *Bucket) PutTree(ctx context.Context, kind, name, dir string) error {
	if err := b.Usable(); err != nil {
		return err
	}
	_, _, err := b.index(ctx, kind, name)
	if isDamage(err) {
		if !errors.Is(err, fs.ErrNotExist) {
			// The chunks that it named stay, and are reused.
			if err := b.remove(ctx, b.key(kind, name, indexName)); err != nil {
				return err
			}
		}
		_, _, err = b.upload(ctx, kind, name, dir)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// GetTree writes the files of a tree into a folder, verifies their checksums, repairs the tree
// in the bucket if it is damaged, and leaves the given number of bytes of the disk free. A missing
// tree is fs.ErrNotExist.
func (b *Bucket) GetTree(ctx context.Context, kind, name, dir string, free int64) error {
	if err := b.Usable(); err != nil {
		return err
	}
	r := b.repair(kind, name)
	defer r.report()
	i, _, err := b.index(ctx, kind, name)
	if isDamage(err) && !errors.Is(err, fs.ErrNotExist) {
		var text []byte
		if i, text, err = r.index(ctx, err); err == nil {
			r.putIndex(ctx, text)
		}
	}
	if err != nil {
		return err
	}
	return b.download(ctx, kind, name, i, dir, &disk.Guard{Dir: dir, Min: free}, r.chunk)
}

// RemoveTree deletes a tree. Removing a missing tree is not an error.
func (b *Bucket) RemoveTree(ctx context.Context, kind, name string) error {
	if err := b.Usable(); err != nil {
		return err
	}
	return b.removeTree(ctx, kind, name)
}
