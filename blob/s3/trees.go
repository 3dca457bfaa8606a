package s3

import (
	"context"
	"errors"
	"io/fs"

	"github.com/bothy-dev/bothy/internal/disk"
)

// PutTree stores the files of a folder as a tree, which is there whole or not at all. One of
// its name that is there already stays: who asks for it knows what must be in it.
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

// GetTree writes the files of a tree into a folder, each piece compared with its sum, and
// leaves so many bytes of the disk free. A tree that is not there is fs.ErrNotExist.
func (b *Bucket) GetTree(ctx context.Context, kind, name, dir string, free int64) error {
	if err := b.Usable(); err != nil {
		return err
	}
	i, _, err := b.index(ctx, kind, name)
	if err != nil {
		return err
	}
	other := func(context.Context, *file, *chunk) ([]byte, error) {
		return nil, errors.New("the caller asks the other hosts")
	}
	return b.download(ctx, kind, name, i, dir, &disk.Guard{Dir: dir, Min: free}, other)
}

// RemoveTree removes a tree. One that is not there is no error.
func (b *Bucket) RemoveTree(ctx context.Context, kind, name string) error {
	if err := b.Usable(); err != nil {
		return err
	}
	return b.removeTree(ctx, kind, name)
}
