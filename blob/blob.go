// Package blob keeps named trees of files, such as snapshots. A tree is there
// whole or not at all. One interface, one suite of tests (blobtest); a folder of the
// host is one implementation, object storage with a folder in front another.
// lifecycle and snapshot use it.
package blob

import (
	"context"
	"os"
	"path/filepath"
)

// Store keeps trees.
//
// The life of a tree: Create makes a draft, a local folder that only its maker
// knows; files are written into it; Commit makes them durable and the tree
// visible under its name, at once; Open gives a local folder to read them from;
// Remove deletes the tree. After a crash, drafts are gone and trees are there.
// All methods may be called from many goroutines at once.
type Store interface {
	// Create starts a tree. The name must be free at Commit.
	Create(ctx context.Context, name string) (Draft, error)
	// Open makes a tree's files readable in a local folder until release is
	// called, also when the tree is removed meanwhile. Nothing may be written
	// there. A tree that is not there is fs.ErrNotExist.
	Open(ctx context.Context, name string) (dir string, release func(), err error)
	// Remove deletes a tree: it is no longer found, and those that have it
	// open keep it until they release it. One that is not there is no error.
	Remove(ctx context.Context, name string) error
	// List names the trees, sorted.
	List(ctx context.Context) ([]string, error)
	// Size is what a tree takes up, in bytes.
	Size(ctx context.Context, name string) (int64, error)
}

// Remote is a Store whose trees are carried to where they outlive this host. What was
// carried may leave the host's disk, and comes back when it is opened.
type Remote interface {
	Store
	// Keep carries a tree there in the background. It retries after errors, until
	// the tree is there or removed, or the store is closed; a later server must ask again.
	Keep(name string)
	// Kept reports whether a tree is there.
	Kept(name string) bool
	// WaitKept waits until a tree is there, for no longer than ctx.
	WaitKept(ctx context.Context, name string) error
	// Local reports whether a tree is on this host's disk.
	Local(name string) bool
	// ReadFile reads a small file of a tree, without the rest of it.
	ReadFile(ctx context.Context, name, file string) ([]byte, error)
}

// Draft is a tree in the making. Its methods are called by one goroutine at a
// time.
type Draft interface {
	// Dir is the local folder to write into.
	Dir() string
	// Flush does the part of Commit that takes long, for the files that are
	// there now and are not written to any more. They can be read meanwhile.
	Flush(ctx context.Context) error
	// Commit makes the tree durable and visible. A name that is taken is
	// fs.ErrExist.
	Commit(ctx context.Context) error
	// Discard deletes the draft. After Commit it does nothing.
	Discard()
}

// ReadFile reads a small file of a tree, without fetching the rest of it from elsewhere.
func ReadFile(ctx context.Context, s Store, name, file string) ([]byte, error) {
	if r, ok := s.(Remote); ok {
		return r.ReadFile(ctx, name, file)
	}
	dir, release, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer release()
	return os.ReadFile(filepath.Join(dir, file))
}
