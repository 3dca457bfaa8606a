// Package depot keeps what the hosts of a cluster share: the images of templates and the builds of
// engines. In the records each is a tree, which is a folder of files that never change. A host gets one
// that it lacks from the object storage or from another host, and uploads what it has.
package depot

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/blob/s3"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/internal/keylock"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template"
)

// Store is what a depot needs of store.Store.
type Store interface {
	Sandbox(ctx context.Context, id string) (*store.Sandbox, error)
	SandboxesInState(ctx context.Context, states ...bothy.State) ([]*store.Sandbox, error)
	OwnSandboxesInState(ctx context.Context, states ...bothy.State) ([]*store.Sandbox, error)
	Snapshot(ctx context.Context, id string) (*bothy.Snapshot, error)
	AllSnapshots(ctx context.Context) ([]*bothy.Snapshot, error)
}

// Trees fetches files from other hosts. It is a *cluster.Trees.
type Trees interface {
	Has(ctx context.Context, host, kind, name, file string) (bool, error)
	Fetch(ctx context.Context, host, kind, name, file, to string, size int64) error
}

// Depot is the part of the shared files that one host has. The server sets its fields while it is put
// together. Without a cluster only ImageInUse and Named are used.
type Depot struct {
	// Host is this host's name, Home its state, and Folder that of its templates.
	Host, Home, Folder string
	// Records are what all hosts know of the trees.
	Records store.Shared
	Store   Store
	Library *template.Library
	Builds  *builds.Store
	// Blobs are the snapshots, and Golden the golden snapshots of this host.
	Blobs, Golden blob.Store
	Bucket        *s3.Bucket // nil without object storage
	Trees         Trees      // nil until the hosts are connected
	// NeededBuilds counts the snapshots that need each engine build.
	NeededBuilds func(ctx context.Context) (map[string]int, error)
	// OnDuty reports whether this host does the work that one host does for all, and Doubtful
	// whether the records may be incomplete.
	OnDuty, Doubtful func() bool
	// MinFree is how many bytes of the disk a fetch leaves free, CacheBytes how many fetched images
	// may take up, 0 for any number, and Grace how long what nothing needs stays in the object
	// storage.
	MinFree, CacheBytes int64
	Grace               time.Duration
	Log                 *slog.Logger

	origins origins
	// storing locks a tree while it is uploaded.
	storing keylock.Locks
	// spoiled are the trees whose files are damaged on this host, by kind and name, with the
	// time.Time when that was found.
	spoiled sync.Map
}

// ImageInUse reports whether an image is used by a sandbox that has not ended or by a
// snapshot, in the given project or, if it is empty, in any. Snapshots in without do not count.
func (d *Depot) ImageInUse(ctx context.Context, project, digest string, without map[string]bool) (bool, error) {
	open, err := d.Store.SandboxesInState(ctx, store.Unended...)
	if err != nil {
		return true, err
	}
	for _, sb := range open {
		if sb.TemplateDigest == digest && (project == "" || sb.ProjectID == project) {
			return true, nil
		}
	}
	names, err := d.snapshotNames(ctx)
	if err != nil {
		return true, err
	}
	for _, name := range names {
		if without[name] {
			continue
		}
		o, err := d.origins.of(ctx, d.Blobs, name)
		if d.Bucket != nil && err != nil && !errors.Is(err, fs.ErrNotExist) {
			return true, err // unknown counts as in use
		}
		if err != nil {
			continue // just deleted
		}
		if o.image == digest && (project == "" || o.project == project) {
			return true, nil
		}
	}
	d.origins.keep(names)
	return false, nil
}

// Named reports whether the records know a snapshot.
func (d *Depot) Named(ctx context.Context, id string) (bool, error) {
	_, err := d.Store.Snapshot(ctx, id)
	if bothy.ErrorCode(err) == bothy.CodeSnapshotNotFound {
		return false, nil
	}
	return err == nil, err
}

// snapshotNames lists the snapshots whose manifests can be read.
func (d *Depot) snapshotNames(ctx context.Context) (names []string, err error) {
	if d.Bucket == nil {
		return d.Blobs.List(ctx)
	}
	all, err := d.Store.AllSnapshots(ctx)
	for _, n := range all {
		names = append(names, n.ID)
	}
	return names, err
}
