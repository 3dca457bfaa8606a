package build

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
)

// A cache stores the results of steps: a layer for each, under a key that covers everything the
// step depends on. Servers may share the folder: its files never change, and appear atomically.
//
//	<kind>/<project>/<key>
type cache struct {
	dir string
	max int64 // bytes
	// locks are the locks of cache mounts.
	locks keyed

	// written counts the bytes since the cache was last pruned.
	written atomic.Int64
	pruning sync.Mutex
	mu      sync.Mutex
	held    map[string]*held // by path
}

// held is a file that builds use.
type held struct {
	project string
	bytes   int64
	builds  int
}

// keyOf is the cache key for the given inputs.
func keyOf(parts ...any) string {
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // all parts are plain data
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// The kinds of files. An image is a hard link to that of a template while there is one; bases are
// images of registries.
const (
	layersDir = "layers"
	imagesDir = "images"
	basesDir  = "bases"
	mountsDir = "mounts"
	notesDir  = "notes"
)

var endings = map[string]string{layersDir: ".tar", imagesDir: ".erofs", basesDir: ".erofs", mountsDir: ".tar", notesDir: ".json"}

func (c *cache) path(kind, project, key string) string {
	return filepath.Join(c.dir, kind, keyOf(project)[:16], key+endings[kind])
}

// create creates a file that will be moved to a path.
func (c *cache) create(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.CreateTemp(filepath.Dir(path), newPrefix+"*")
}

const newPrefix = ".new-"

// replace moves a file that no build refers to into its place.
func (c *cache) replace(tmp, path string) error {
	if err := flush(tmp); err != nil {
		return err
	}
	if info, err := os.Stat(tmp); err == nil {
		defer c.grew(info.Size())
	}
	return os.Rename(tmp, path)
}

// grew prunes the cache during a build that writes much.
func (c *cache) grew(bytes int64) {
	if c.written.Add(bytes) > c.max/16 {
		_ = c.prune(0) // at the end of the build an error is logged
	}
}

func flush(tmp string) error {
	f, err := os.Open(tmp)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// A hold is what one build uses of the cache. It is not pruned.
type hold struct {
	c       *cache
	project string
	paths   map[string]bool
}

func (c *cache) hold(project string) *hold {
	return &hold{c: c, project: project, paths: map[string]bool{}}
}

// end ends the use.
func (h *hold) end() {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	for path := range h.paths {
		if f := h.c.held[path]; f.builds > 1 {
			f.builds--
		} else {
			delete(h.c.held, path)
		}
	}
	clear(h.paths)
}

// take adds a file to what is used. The caller holds the lock.
func (h *hold) take(path string, bytes int64) {
	if h.paths[path] {
		return
	}
	h.paths[path] = true
	f := h.c.held[path]
	if f == nil {
		f = &held{project: h.project, bytes: bytes}
		if h.c.held == nil {
			h.c.held = map[string]*held{}
		}
		h.c.held[path] = f
	}
	f.builds++
}

// has reports whether a file exists, and marks it as used.
func (h *hold) has(path string) bool {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	now := time.Now()
	info, err := os.Stat(path)
	if err != nil || os.Chtimes(path, now, now) != nil {
		return false
	}
	h.take(path, info.Size())
	return true
}

// keep moves a file into its place. An existing file stays, since running builds refer to it,
// and the new one is deleted.
func (h *hold) keep(tmp, path string) error {
	if err := flush(tmp); err != nil {
		return err
	}
	info, err := os.Stat(tmp)
	if err != nil {
		return err
	}
	if info.Size() > h.left() {
		return errShare
	}
	defer h.c.grew(info.Size())
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	if err := os.Link(tmp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	h.take(path, info.Size())
	return os.Remove(tmp)
}

var errShare = bothy.Errorf(bothy.CodeQuota, "the running builds of the project use more of the build cache than a project may").
	WithHint("Build fewer templates at once, or start from smaller images and keep what commands leave small.")

// left is how many bytes more the project's builds may use: what they use cannot be pruned.
func (h *hold) left() int64 {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	left := h.c.max
	for _, f := range h.c.held {
		if f.project == h.project {
			left -= f.bytes
		}
	}
	return left
}

// share receives what is written to a file of the cache, like a disk.Guard.
type share struct{ left int64 }

func (s *share) Write(p []byte) (int, error) {
	if s.left -= int64(len(p)); s.left < 0 {
		return 0, errShare
	}
	return len(p), nil
}

// remember stores a small value; recall reads it. It is not synced to the disk: what a power cut has
// damaged cannot be parsed, and counts as missing.
func (h *hold) remember(key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	path := h.c.path(notesDir, h.project, key)
	tmp, err := h.c.create(path)
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	h.c.grew(int64(len(text)))
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

func (h *hold) recall(key string, v any) bool {
	path := h.c.path(notesDir, h.project, key)
	text, err := os.ReadFile(path)
	return err == nil && json.Unmarshal(text, v) == nil && h.has(path)
}

const (
	// leftover is the age from which an unfinished file is what a killed server has left, and unused
	// that from which an image that is no template's is deleted.
	leftover = time.Hour
	unused   = time.Minute
	// leastBytes is what each file counts for at least, so that their number is limited too.
	leastBytes = 64 << 10
)

// entry is a file of the cache.
type entry struct {
	path  string
	bytes int64
	used  time.Time
}

// prune deletes images that belong to no template any more, and then the least recently used files
// until the cache is within its limit and so many bytes smaller than it is. It begins with those of
// the project that has most. What builds use stays.
func (c *cache) prune(spare int64) error {
	c.pruning.Lock()
	defer c.pruning.Unlock()
	c.written.Store(0)
	all, err := c.list()
	errs := []error{err}
	sums, total := map[string]int64{}, int64(0)
	for project, files := range all {
		slices.SortFunc(files, func(a, b entry) int { return a.used.Compare(b.used) })
		for _, f := range files {
			sums[project] += f.bytes
		}
		total += sums[project]
	}
	for most := min(c.max, total-spare); total > most && len(all) > 0; {
		project := ""
		for p := range all {
			if project == "" || sums[p] > sums[project] {
				project = p
			}
		}
		f := all[project][0]
		if all[project] = all[project][1:]; len(all[project]) == 0 {
			delete(all, project)
		}
		gone, err := c.drop(f.path)
		if errs = append(errs, err); gone {
			sums[project], total = sums[project]-f.bytes, total-f.bytes
		}
	}
	return errors.Join(errs...)
}

// list lists the files by their project's folder, without the images of templates, which count as
// theirs. It deletes leftovers, and images that are no template's.
func (c *cache) list() (map[string][]entry, error) {
	all := map[string][]entry{}
	var errs []error
	err := filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil // it was just deleted
		}
		rel, _ := filepath.Rel(c.dir, path)
		kind, _, _ := strings.Cut(rel, string(filepath.Separator))
		age := time.Since(info.ModTime())
		alone := kind == imagesDir && info.Sys().(*syscall.Stat_t).Nlink == 1
		if alone && age > unused || strings.HasPrefix(d.Name(), newPrefix) && age > leftover {
			gone, err := c.drop(path)
			if errs = append(errs, err); gone {
				return nil
			}
		}
		if kind == imagesDir && !alone {
			return nil
		}
		project := filepath.Base(filepath.Dir(path))
		all[project] = append(all[project], entry{path, max(info.Size(), leastBytes), info.ModTime()})
		return nil
	})
	return all, errors.Join(append(errs, err)...)
}

// drop deletes a file, unless a build uses it.
func (c *cache) drop(path string) (gone bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[path] != nil {
		return false, nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, nil
}

// keyed has a lock for each name.
type keyed struct {
	mu sync.Mutex
	m  map[string]chan struct{}
}

func (k *keyed) get(name string) chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.m == nil {
		k.m = map[string]chan struct{}{}
	}
	if k.m[name] == nil {
		k.m[name] = make(chan struct{}, 1)
	}
	return k.m[name]
}
