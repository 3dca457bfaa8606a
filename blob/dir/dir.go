// Package dir stores trees of files in a folder of this host.
package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

// draftPrefix marks trees that are not committed yet, or that are being deleted.
const draftPrefix = ".draft-"

// goingPrefix marks trees that were removed while they were open.
const goingPrefix = draftPrefix + "remove-"

// Store implements blob.Store.
type Store struct {
	root string

	mu    sync.Mutex
	open  map[string]int  // number of readers of a tree
	going map[string]bool // trees to delete after their last reader
}

var _ blob.Store = (*Store)(nil)

// Open returns the store in a folder, creating it if needed, and deletes the drafts of an
// earlier process. Only one process at a time may have it open.
func Open(root string) (*Store, error) {
	if err := os.MkdirAll(root, 0o711); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if name, going := strings.CutPrefix(e.Name(), goingPrefix); going {
			if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
				return nil, err
			}
		}
		if strings.HasPrefix(e.Name(), draftPrefix) {
			if err := os.RemoveAll(filepath.Join(root, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return &Store{root: root, open: map[string]int{}, going: map[string]bool{}}, nil
}

func (s *Store) path(name string) (string, error) {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("%q is not a valid name for a tree of files", name)
	}
	return filepath.Join(s.root, name), nil
}

// CheckName returns an error if a name is not valid for a tree.
func (s *Store) CheckName(name string) error {
	_, err := s.path(name)
	return err
}

// Create makes a draft.
func (s *Store) Create(_ context.Context, name string) (blob.Draft, error) {
	final, err := s.path(name)
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp(s.root, draftPrefix)
	if err != nil {
		return nil, err
	}
	return &draft{root: s.root, dir: tmp, final: final}, nil
}

// Open returns the tree's own folder.
func (s *Store) Open(_ context.Context, name string) (string, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, err := s.find(name)
	if err != nil {
		return "", nil, err
	}
	s.open[name]++
	return dir, sync.OnceFunc(func() { s.release(name) }), nil
}

// find returns the folder of an existing tree. It is called with mu held.
func (s *Store) find(name string) (string, error) {
	dir, err := s.path(name)
	if err == nil && s.going[name] {
		err = &fs.PathError{Op: "open", Path: dir, Err: fs.ErrNotExist}
	}
	if err == nil {
		_, err = os.Stat(dir)
	}
	return dir, err
}

// release deletes a removed tree after its last reader.
func (s *Store) release(name string) {
	s.mu.Lock()
	if s.open[name]--; s.open[name] > 0 {
		s.mu.Unlock()
		return
	}
	delete(s.open, name)
	if !s.going[name] {
		s.mu.Unlock()
		return
	}
	delete(s.going, name)
	going, err := s.hide(name)
	s.mu.Unlock()
	if err == nil && s.discard(going) == nil {
		_ = os.Remove(filepath.Join(s.root, goingPrefix+name)) // if this fails, Open repeats the removal
	}
}

// Remove deletes a tree. If it is open, it only becomes invisible, and is deleted at the last
// release or the next Open of the store.
func (s *Store) Remove(_ context.Context, name string) error {
	if _, err := s.path(name); err != nil {
		return err
	}
	s.mu.Lock()
	if s.open[name] == 0 {
		going, err := s.hide(name)
		s.mu.Unlock()
		if err != nil {
			return err
		}
		return s.discard(going)
	}
	defer s.mu.Unlock()
	f, err := os.Create(filepath.Join(s.root, goingPrefix+name))
	if err != nil {
		return err
	}
	if err := errors.Join(f.Close(), syncPath(s.root)); err != nil {
		return err
	}
	s.going[name] = true
	return nil
}

// RemoveClosed deletes a tree unless it is open, and reports whether it did.
func (s *Store) RemoveClosed(name string) (bool, error) {
	s.mu.Lock()
	if s.open[name] > 0 {
		s.mu.Unlock()
		return false, nil
	}
	going, err := s.hide(name)
	s.mu.Unlock()
	if err != nil || going == "" {
		return false, err
	}
	return true, s.discard(going)
}

// hide renames a tree, so that it cannot be found half-deleted, and returns its new path; "" if
// there is none. It is called with mu held.
func (s *Store) hide(name string) (going string, err error) {
	dir, err := s.path(name)
	if err != nil {
		return "", err
	}
	going = filepath.Join(s.root, draftPrefix+"removed-"+name)
	if err := os.Rename(dir, going); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return going, nil
}

func (s *Store) discard(going string) error {
	if going == "" {
		return nil
	}
	return errors.Join(syncPath(s.root), os.RemoveAll(going))
}

// List names the trees.
func (s *Store) List(context.Context) ([]string, error) {
	entries, err := os.ReadDir(s.root)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !s.going[e.Name()] {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// Size adds up the files.
func (s *Store) Size(_ context.Context, name string) (int64, error) {
	s.mu.Lock()
	dir, err := s.find(name)
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return treeSize(dir)
}

func treeSize(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}

type draft struct {
	root, dir, final string
	flushed          map[string]bool // names of files that are durable
	done             bool
}

func (d *draft) Dir() string { return d.dir }

// worthFlushing is the size in bytes from which writing a file to disk ahead of the others
// saves time.
const worthFlushing = 4 << 20

func (d *draft) Flush(context.Context) error {
	large, err := d.unflushed(func(e fs.DirEntry) bool {
		info, err := e.Info()
		return e.Type().IsRegular() && err == nil && info.Size() >= worthFlushing
	})
	if err != nil {
		return err
	}
	if err := syncAll(large); err != nil {
		return fmt.Errorf("make %s durable: %w", filepath.Base(d.final), err)
	}
	d.flushed = map[string]bool{}
	for _, path := range large {
		d.flushed[path] = true
	}
	return nil
}

// unflushed lists what is in the folder and not yet durable.
func (d *draft) unflushed(wanted func(fs.DirEntry) bool) (paths []string, err error) {
	err = filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && wanted(e) && !d.flushed[path] {
			paths = append(paths, path)
		}
		return err
	})
	return paths, err
}

// sync makes every file durable, and then every folder.
func (d *draft) sync() error {
	files, err := d.unflushed(func(e fs.DirEntry) bool { return e.Type().IsRegular() })
	if err != nil {
		return err
	}
	dirs, err := d.unflushed(fs.DirEntry.IsDir)
	if err != nil {
		return err
	}
	if err := syncAll(files); err != nil {
		return err
	}
	return syncAll(dirs)
}

func (d *draft) Commit(context.Context) error {
	if err := failpoint.Hit("blob.commit"); err != nil {
		return err
	}
	if err := d.sync(); err != nil {
		return fmt.Errorf("make %s durable: %w", filepath.Base(d.final), err)
	}
	if err := failpoint.Hit("blob.synced"); err != nil {
		return err
	}
	if _, err := os.Lstat(d.final); err == nil {
		return fmt.Errorf("%s: %w", filepath.Base(d.final), fs.ErrExist)
	}
	if err := os.Rename(d.dir, d.final); err != nil {
		return err
	}
	// Until the new name is durable, Discard deletes it.
	d.dir = d.final
	if err := failpoint.Hit("blob.renamed"); err != nil {
		return err
	}
	if err := syncPath(d.root); err != nil {
		return err
	}
	d.done = true
	return nil
}

func (d *draft) Discard() {
	if !d.done {
		os.RemoveAll(d.dir)
	}
}

// syncAll makes files or folders durable, concurrently: the file system then needs fewer
// commits of its journal.
func syncAll(paths []string) error {
	errs := make([]error, len(paths))
	var all sync.WaitGroup
	for i, path := range paths {
		all.Go(func() { errs[i] = syncPath(path) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
