// Package blob stores named trees of files, such as snapshots. A tree is stored completely or
// not at all. blob/dir stores trees in a folder of the host, and blob/s3 in object storage with
// a folder as a cache; both pass the suite in blobtest. lifecycle and snapshot use it.
package blob

import (
	"context"
	"os"
	"path/filepath"
)

// Store keeps trees.
//
// The life of a tree: Create makes a draft, a local folder that only its creator knows; files
// are written into it; Commit makes them durable and the tree visible under its name,
// atomically; Open returns a local folder to read them from; Remove deletes the tree. After a
// crash, drafts are gone and committed trees are intact. All methods are safe for concurrent
// use.
type Store interface {
	// Create starts a tree. The name must be free at Commit.
	Create(ctx context.Context, name string) (Draft, error)
	// Open makes a tree's files readable in a local folder until release is called, even if the
	// tree is removed meanwhile. The folder must not be written to. A missing tree is
	// fs.ErrNotExist.
	Open(ctx context.Context, name string) (dir string, release func(), err error)
	// Remove deletes a tree: it is no longer found, and those who have it open keep it until
	// they release it. Removing a missing tree is not an error.
	Remove(ctx context.Context, name string) error
	// List names the trees, sorted.
	List(ctx context.Context) ([]string, error)
	// Size is the size of a tree in bytes.
	Size(ctx context.Context, name string) (int64, error)
}

// Remote is a Store that uploads its trees to storage that outlives this host. An uploaded tree
// may be evicted from the host's disk, and is fetched again when it is opened.
type Remote interface {
	Store
	// Keep uploads a tree in the background. It retries after errors until the tree is uploaded
	// or removed, or the store is closed. After a restart, Keep must be called again.
	Keep(name string)
	// Kept reports whether a tree is uploaded.
	Kept(name string) bool
	// WaitKept waits until a tree is uploaded or ctx ends.
	WaitKept(ctx context.Context, name string) error
	// Local reports whether a tree is on this host's disk.
	Local(name string) bool
	// ReadFile reads a small file of a tree, without the rest of it.
	ReadFile(ctx context.Context, name, file string) ([]byte, error)
}

// Draft is a tree that is being created. Its methods must not be called concurrently.
type Draft interface {
	// Dir is the local folder to write into.
	Dir() string
	// Flush does the slow part of Commit in advance for the files that exist now. They must not
	// be written to afterwards, but can be read.
	Flush(ctx context.Context) error
	// Commit makes the tree durable and visible. If the name is taken it returns fs.ErrExist.
	Commit(ctx context.Context) error
	// Discard deletes the draft. After Commit it does nothing.
	Discard()
}

// ReadFile reads a small file of a tree without fetching the rest of it.
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
