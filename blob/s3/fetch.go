package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy/internal/disk"
)

// fetch is a tree that is being fetched. It is not evicted before its waiters have opened it.
type fetch struct {
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	err     error
	waiters int
}

// openFetched fetches a tree and opens it. Concurrent callers share one fetch.
func (s *Store) openFetched(ctx context.Context, name string) (string, func(), error) {
	s.mu.Lock()
	f := s.fetches[name]
	if f == nil {
		f = &fetch{done: make(chan struct{})}
		f.ctx, f.cancel = context.WithCancel(s.ctx)
		s.fetches[name] = f
		s.work.Go(func() {
			defer close(f.done)
			if f.err = s.fetch(f.ctx, name); f.err != nil && f.ctx.Err() == nil {
				s.counts.fetchFailures.Add(1)
			}
		})
	}
	f.waiters++
	s.mu.Unlock()
	defer s.leave(name, f)
	select {
	case <-f.done:
	case <-ctx.Done():
		return "", nil, context.Cause(ctx)
	}
	if f.err != nil {
		return "", nil, s.fetchError(name, f.err)
	}
	dir, release, err := s.local.Open(ctx, name)
	if err == nil {
		s.used(name)
	}
	return dir, release, err
}

// leave cancels a fetch once its last waiter is gone.
func (s *Store) leave(name string, f *fetch) {
	s.mu.Lock()
	f.waiters--
	last := f.waiters == 0
	if last {
		f.cancel()
		delete(s.fetches, name)
	}
	s.mu.Unlock()
	if last {
		s.evict()
	}
}

func (s *Store) fetch(ctx context.Context, name string) error {
	if err := s.bucket.Usable(); err != nil {
		return err
	}
	// Another fetch may have just finished.
	if s.Local(name) {
		return nil
	}
	i, err := s.indexOf(ctx, name)
	if err != nil {
		return err
	}
	if err := s.makeRoom(i.room()); err != nil {
		return err
	}
	d, err := s.local.Create(ctx, name)
	if err != nil {
		return err
	}
	defer d.Discard()
	begun := time.Now()
	guard := &disk.Guard{Dir: s.root, Min: s.o.MinFree}
	if err := s.bucket.download(ctx, s.o.Kind, name, i, d.Dir(), guard); err != nil {
		return err
	}
	// A cancelled fetch may have completed after all.
	if err := d.Commit(ctx); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	s.counts.fetches.Add(1)
	s.counts.fetchBytes.Add(i.transferred())
	s.log.Info("fetched from the object storage", "kind", s.o.Kind, "name", name, "bytes", i.transferred(), "ms", time.Since(begun).Milliseconds())
	if s.has(gone, name) { // removed meanwhile
		return errors.Join(s.local.Remove(context.WithoutCancel(ctx), name), &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist})
	}
	return nil
}

// makeRoom evicts trees until the given number of bytes fits on the disk, if possible.
func (s *Store) makeRoom(bytes int64) error {
	short := func() (int64, error) {
		free, err := disk.Free(s.root)
		return bytes + s.o.MinFree - free, err
	}
	lacking, err := short()
	if err == nil && lacking > 0 {
		s.evictUntil(func(_, freed int64) bool { return freed >= lacking })
		lacking, err = short()
	}
	if err == nil && lacking > 0 {
		err = fmt.Errorf("%d bytes are needed, and another %d must stay free: %w", bytes, s.o.MinFree, disk.ErrNoRoom)
	}
	return err
}

// evict brings the cached trees below CacheBytes.
func (s *Store) evict() {
	if s.o.CacheBytes > 0 {
		s.evictUntil(func(left, _ int64) bool { return left <= s.o.CacheBytes })
	}
}

// cached is a tree that is both on this host and in the bucket.
type cached struct {
	name string
	used time.Time
	size int64
}

// evictUntil deletes cached trees from this host, least recently used first, until enough
// returns true for the bytes left and freed.
func (s *Store) evictUntil(enough func(left, freed int64) bool) {
	if s.o.KeepAll || s.bucket.Usable() != nil {
		return
	}
	s.evicting.Lock()
	defer s.evicting.Unlock()
	all, left, err := s.cachedTrees()
	if err != nil {
		s.log.Warn("cannot list the snapshots that could be evicted from this host's disk", "error", err)
		return
	}
	var freed int64
	for _, c := range all {
		if enough(left, freed) {
			return
		}
		s.mu.Lock()
		wanted := s.fetches[c.name] != nil
		s.mu.Unlock()
		if wanted {
			continue
		}
		removed, err := s.local.RemoveClosed(c.name)
		if err != nil {
			s.log.Warn("cannot evict from this host's disk", "kind", s.o.Kind, "name", c.name, "error", err)
		}
		if removed {
			left, freed = left-c.size, freed+c.size
			s.mu.Lock()
			delete(s.sizes, c.name)
			s.mu.Unlock()
		}
	}
}

func (s *Store) cachedTrees() (all []cached, total int64, err error) {
	kept, err := s.stateNames(indexes)
	if err != nil {
		return nil, 0, err
	}
	for _, name := range kept {
		info, err := os.Stat(s.state(indexes, name))
		if err != nil {
			continue // removed meanwhile
		}
		size, here := s.localSize(name)
		if here {
			all, total = append(all, cached{name, info.ModTime(), size}), total+size
		}
	}
	slices.SortFunc(all, func(a, b cached) int { return a.used.Compare(b.used) })
	return all, total, nil
}

// localSize returns how much disk space a tree uses on this host, if it is there.
func (s *Store) localSize(name string) (int64, bool) {
	path := filepath.Join(s.root, name)
	if _, err := os.Stat(path); err != nil {
		return 0, false
	}
	s.mu.Lock()
	size, ok := s.sizes[name]
	s.mu.Unlock()
	if ok {
		return size, true
	}
	err := filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			size += st.Blocks * 512
		}
		return nil
	})
	if err != nil {
		return 0, false
	}
	s.mu.Lock()
	s.sizes[name] = size
	s.mu.Unlock()
	return size, true
}
