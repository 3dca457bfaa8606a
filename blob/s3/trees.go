package s3

import (
	"context"
	"errors"
	"io/fs"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/disk"
)

// PutTree stores the files of a folder as a tree, completely or not at all. A tree that exists is
// written again, since it may be damaged: the caller ensures that a name always has the same
// contents, and that the files are intact.
func (b *Bucket) PutTree(ctx context.Context, kind, name, dir string) error {
	if err := b.Usable(); err != nil {
		return err
	}
	_, _, err := b.index(ctx, kind, name)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing && bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
		return err
	}
	_, _, err = b.upload(ctx, kind, name, dir, !missing)
	if errors.Is(err, fs.ErrExist) { // another host has been faster
		return nil
	}
	return err
}

// GetTree writes the files of a tree into a folder, verifies their checksums, and leaves the given
// number of bytes of the disk free. A missing tree is fs.ErrNotExist.
func (b *Bucket) GetTree(ctx context.Context, kind, name, dir string, free int64) error {
	if err := b.Usable(); err != nil {
		return err
	}
	i, _, err := b.index(ctx, kind, name)
	if err != nil {
		return err
	}
	return b.download(ctx, kind, name, i, dir, &disk.Guard{Dir: dir, Min: free})
}

// RemoveTree deletes a tree. Removing a missing tree is not an error.
func (b *Bucket) RemoveTree(ctx context.Context, kind, name string) error {
	if err := b.Usable(); err != nil {
		return err
	}
	return b.removeTree(ctx, kind, name)
}
