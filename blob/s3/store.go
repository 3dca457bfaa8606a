package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/blob/dir"
	"github.com/bothy-dev/bothy/internal/disk"
	"github.com/bothy-dev/bothy/internal/wholefile"
)

// Options configure a Store.
type Options struct {
	// Kind is the part of the bucket with the trees, such as snapshots.
	Kind string
	// State is a folder for the store's own state.
	State string
	// CacheBytes limits the disk space of trees that are also in the bucket; 0 means no limit.
	CacheBytes int64
	// KeepAll disables eviction, even when the disk is full.
	KeepAll bool
	// MinFree is how many bytes of the disk must stay free.
	MinFree int64
	// Grace is how long a removed tree stays in the bucket.
	Grace time.Duration
	// Named reports whether the records name a tree. Trees that they name are not deleted from
	// the bucket, and none are while it fails.
	Named func(ctx context.Context, name string) (bool, error)
	// Doubtful reports that the records may be incomplete: then nothing is deleted. If it is
	// nil, they are complete.
	Doubtful func() bool
	// Before is called with a tree's folder before the tree is uploaded, and puts what it is useless
	// without into the bucket. While it fails, the tree is not uploaded. Optional.
	Before func(ctx context.Context, dir string) error
	// OnKept is called for each tree passed to Keep once it is in the bucket.
	OnKept func(name string)
	// Verify reports whether the files of a tree on this host are intact, before they are
	// uploaded. If it is nil, all are.
	Verify func(ctx context.Context, name, dir string) error
	Log    *slog.Logger

	// now and backoff are replaced in tests.
	now     func() time.Time
	backoff func(failures int) time.Duration
}

// Store implements blob.Remote. Trees that are only on this host are never evicted.
type Store struct {
	local  *dir.Store
	root   string
	bucket *Bucket
	o      Options
	log    *slog.Logger

	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	uploads map[string]*upload
	wake    chan struct{} // capacity 1
	fetches map[string]*fetch
	sizes   map[string]int64 // of local trees, on disk
	// pause is until when no upload starts, since the storage is unavailable.
	pause    time.Time
	failures int

	evicting sync.Mutex
	counts   counts
}

// counts are totals since the store was opened.
type counts struct {
	uploads, uploadFailures, uploadBytes atomic.Int64
	fetches, fetchFailures, fetchBytes   atomic.Int64
}

// Reading is the state of a store, with totals since it was opened.
type Reading struct {
	// Pending is the number of trees waiting to be uploaded, and Oldest how long the oldest has
	// waited.
	Pending int
	Oldest  time.Duration

	Uploads, UploadFailures, UploadBytes int64
	Fetches, FetchFailures, FetchBytes   int64
}

// Reading returns the current state.
func (s *Store) Reading() Reading {
	c := &s.counts
	r := Reading{
		Uploads: c.uploads.Load(), UploadFailures: c.uploadFailures.Load(), UploadBytes: c.uploadBytes.Load(),
		Fetches: c.fetches.Load(), FetchFailures: c.fetchFailures.Load(), FetchBytes: c.fetchBytes.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Pending = len(s.uploads)
	for _, u := range s.uploads {
		r.Oldest = max(r.Oldest, time.Since(u.asked))
	}
	return r
}

var _ blob.Remote = (*Store)(nil)

// Open returns the store with its local trees in root. Only one process at a time may have it
// open. The bucket is not accessed until it is claimed.
func Open(root string, b *Bucket, o Options) (*Store, error) {
	local, err := dir.Open(root)
	if err != nil {
		return nil, err
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.backoff == nil {
		o.backoff = backoff
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		local: local, root: root, bucket: b, o: o, log: o.Log, wake: make(chan struct{}, 1),
		uploads: map[string]*upload{}, fetches: map[string]*fetch{}, sizes: map[string]int64{},
	}
	for _, d := range []string{indexes, gone} {
		if err := os.MkdirAll(filepath.Join(o.State, d), 0o700); err != nil {
			return nil, err
		}
		drafts, _ := filepath.Glob(filepath.Join(o.State, d, wholefile.Draft+"*"))
		for _, path := range drafts {
			_ = os.Remove(path)
		}
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	for range uploadsAtOnce {
		s.work.Go(s.uploader)
	}
	return s, nil
}

// placeFile records which place the state belongs to.
const placeFile = "place"

// Settle discards state that belongs to another place than the bucket's current one.
func (s *Store) Settle() error {
	path := filepath.Join(s.o.State, placeFile)
	was, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if string(was) == s.bucket.Place() {
		return nil
	}
	if err == nil {
		for _, folder := range []string{indexes, gone} {
			names, err := s.stateNames(folder)
			if err != nil {
				return err
			}
			for _, name := range names {
				if err := removeFile(s.state(folder, name)); err != nil {
					return err
				}
			}
		}
	}
	draft := path + ".new"
	if err := os.WriteFile(draft, []byte(s.bucket.Place()), 0o600); err != nil {
		return err
	}
	return os.Rename(draft, path)
}

// Has asks the bucket whether it has a tree.
func (s *Store) Has(ctx context.Context, name string) (bool, error) {
	_, _, err := s.bucket.index(ctx, s.o.Kind, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Close stops uploads and fetches. Uploads continue after the next Keep.
func (s *Store) Close() {
	s.stop()
	s.work.Wait()
}

// The folders of the state.
const (
	// indexes contains the indexes of trees in the bucket.
	indexes = "index"
	// gone contains the removal times of trees that may still be in the bucket.
	gone = "gone"
)

func (s *Store) state(folder, name string) string { return filepath.Join(s.o.State, folder, name) }

func (s *Store) has(folder, name string) bool {
	_, err := os.Stat(s.state(folder, name))
	return err == nil
}

// Create makes a draft on this host.
func (s *Store) Create(ctx context.Context, name string) (blob.Draft, error) {
	d, err := s.local.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	return &draft{d, s, name}, nil
}

// draft commits to this host, unless the bucket already has a tree of that name.
type draft struct {
	blob.Draft
	s    *Store
	name string
}

func (d *draft) Commit(ctx context.Context) error {
	if d.s.has(indexes, d.name) {
		return fmt.Errorf("%s: %w", d.name, fs.ErrExist)
	}
	return d.Draft.Commit(ctx)
}

// Open opens a tree on this host. If it is only in the bucket, it is fetched first.
func (s *Store) Open(ctx context.Context, name string) (string, func(), error) {
	dir, release, err := s.local.Open(ctx, name)
	if !errors.Is(err, fs.ErrNotExist) || s.has(gone, name) {
		if err == nil {
			s.used(name)
		}
		return dir, release, err
	}
	return s.openFetched(ctx, name)
}

// used marks a tree as most recently used.
func (s *Store) used(name string) {
	now := s.o.now()
	_ = os.Chtimes(s.state(indexes, name), now, now) // fails without an index, but such a tree is not evicted anyway
}

// Remove deletes a tree here at once, and from the bucket after the grace time.
func (s *Store) Remove(ctx context.Context, name string) error {
	if err := s.local.CheckName(name); err != nil {
		return err
	}
	s.mu.Lock()
	u := s.uploads[name]
	delete(s.uploads, name)
	s.mu.Unlock()
	if u != nil {
		u.end()
	}
	if err := s.recordRemoval(name); err != nil {
		return err
	}
	if err := s.local.Remove(ctx, name); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.sizes, name)
	s.mu.Unlock()
	return removeFile(s.state(indexes, name))
}

// List names the trees on this host and those whose index it has.
func (s *Store) List(ctx context.Context) ([]string, error) {
	names, err := s.local.List(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := s.stateNames(indexes)
	if err != nil {
		return nil, err
	}
	names = append(names, kept...)
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return s.has(gone, name) }), nil
}

// Local reports whether a tree is on this host's disk.
func (s *Store) Local(name string) bool {
	_, release, err := s.local.Open(context.Background(), name)
	if err != nil {
		return false
	}
	release()
	return true
}

// Size adds up the files.
func (s *Store) Size(ctx context.Context, name string) (int64, error) {
	n, err := s.local.Size(ctx, name)
	if !errors.Is(err, fs.ErrNotExist) || s.has(gone, name) {
		return n, err
	}
	i, err := s.indexOf(ctx, name)
	if err != nil {
		return 0, s.fetchError(name, err)
	}
	return i.size(), nil
}

// ReadFile reads a small file, from this host or from the tree's index.
func (s *Store) ReadFile(ctx context.Context, name, file string) ([]byte, error) {
	dir, release, err := s.local.Open(ctx, name)
	if err == nil {
		defer release()
		return os.ReadFile(filepath.Join(dir, file))
	}
	if !errors.Is(err, fs.ErrNotExist) || s.has(gone, name) {
		return nil, err
	}
	i, err := s.indexOf(ctx, name)
	if err != nil {
		return nil, s.fetchError(name, err)
	}
	for _, f := range i.Files {
		if f.Name == file && f.Size <= inlineBytes {
			return f.Data, nil
		}
	}
	return nil, &fs.PathError{Op: "read", Path: name + "/" + file, Err: fs.ErrNotExist}
}

// indexOf reads the index of a tree from this host, or else from the bucket, and keeps it.
func (s *Store) indexOf(ctx context.Context, name string) (*index, error) {
	text, err := os.ReadFile(s.state(indexes, name))
	if err == nil {
		// If it is damaged here, the bucket has it.
		if i, err := decodeIndex(name, text); err == nil {
			return i, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := s.bucket.Usable(); err != nil {
		return nil, err
	}
	i, text, err := s.bucket.index(ctx, s.o.Kind, name)
	if err != nil {
		return nil, err
	}
	return i, s.remember(indexes, name, text)
}

// fetchError turns an error of a fetch into one for the caller.
func (s *Store) fetchError(name string, err error) error {
	var be *bothy.Error
	switch {
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, fs.ErrNotExist):
		return err
	case errors.As(err, &be) && be.Code != bothy.CodeStore && be.Code != bothy.CodeConflict && be.Code != bothy.CodeInvalid:
		return err
	case errors.Is(err, disk.ErrNoRoom) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return bothy.Errorf(bothy.CodeDiskFull, "the host's disk has no room to fetch %s from the object storage", name).
			WithHint("Delete unneeded snapshots, or ask the operator for disk space. Nothing was lost.").Because(err)
	}
	e := bothy.Errorf(bothy.CodeStore, "cannot reach the object storage to fetch %s", name).
		WithHint("Try again; nothing was lost. Run `bothy doctor` on the server's host to find the cause.").Because(err)
	e.RetryAfter = 5 * time.Second
	return e
}

// remember writes a file of the state durably.
func (s *Store) remember(folder, name string, text []byte) error {
	return wholefile.Write(s.state(folder, name), text, 0o600)
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// stateNames lists a folder of the state.
func (s *Store) stateNames(folder string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(s.o.State, folder))
	for _, e := range entries {
		if e.Name()[0] != '.' {
			names = append(names, e.Name())
		}
	}
	return names, err
}
