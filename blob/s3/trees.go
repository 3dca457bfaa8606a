package s3

import (
	"context"
	"errors"
	"io/fs"

	"github.com/bothy-dev/bothy/internal/disk"
)

// PutTree stores the files of a folder as a tree, completely or not at all. If the name exists,
// its tree stays: the caller ensures that a name always has the same contents.
func (b *Bucket) PutTree(ctx context.Context, kind, name, dir string) error {
	if err := b.Usable(); err != nil {
		return err
	}
	if _, _, err := b.index(ctx, kind, name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, _, err := b.upload(ctx, kind, name, dir)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// GetTree writes the files of a tree into a folder, verifies their checksums, and leaves the
// given number of bytes of the disk free. A missing tree is fs.ErrNotExist.
func (b *Bucket) GetTree(ctx context.Context, kind, name, dir string, free int64) error {
	if err := b.Usable(); err != nil {
		return err
	}
	i, _, err := b.index(ctx, kind, name)
	if err != nil {
		return err
	}
	other := func(context.Context, *file, *chunk) ([]byte, error) {
		return nil, errors.New("no repair: the caller asks the other hosts")
	}
	return b.download(ctx, kind, name, i, dir, &disk.Guard{Dir: dir, Min: free}, other)
}

// RemoveTree deletes a tree. Removing a missing tree is not an error.
func (b *Bucket) RemoveTree(ctx context.Context, kind, name string) error {
	if err := b.Usable(); err != nil {
		return err
	}
	return b.removeTree(ctx, kind, name)
}
