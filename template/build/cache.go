package build

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"
)

// A cache stores the results of steps: a layer for each, under a key that covers everything the
// step depends on. Servers may share the folder: its files never change, and appear atomically.
type cache struct {
	dir string
	max int64 // bytes
	// locks are the locks of cache mounts.
	locks keyed
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

func (c *cache) layer(key string) string { return filepath.Join(c.dir, "layers", key+".tar") }
func (c *cache) image(key string) string { return filepath.Join(c.dir, "images", key+".erofs") }
func (c *cache) mount(key string) string { return filepath.Join(c.dir, "mounts", key+".tar") }
func (c *cache) note(key string) string  { return filepath.Join(c.dir, "notes", key+".json") }

func (c *cache) open() error {
	for _, d := range []string{"layers", "images", "mounts", "notes"} {
		if err := os.MkdirAll(filepath.Join(c.dir, d), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a file exists, and marks it as used.
func (c *cache) has(path string) bool {
	now := time.Now()
	return os.Chtimes(path, now, now) == nil
}

// keep moves a file into its place. An existing file stays, since running builds refer to it,
// and the new one is deleted.
func (c *cache) keep(tmp, path string) error {
	if err := flush(tmp); err != nil {
		return err
	}
	if err := os.Link(tmp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Remove(tmp)
}

// replace is keep for files that no build refers to.
func (c *cache) replace(tmp, path string) error {
	if err := flush(tmp); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func flush(tmp string) error {
	f, err := os.Open(tmp)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// remember stores a small value; recall reads it.
func (c *cache) remember(key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Join(c.dir, "notes"), ".new-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = c.replace(tmp.Name(), c.note(key))
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

func (c *cache) recall(key string, v any) bool {
	text, err := os.ReadFile(c.note(key))
	return err == nil && json.Unmarshal(text, v) == nil && c.has(c.note(key))
}

// prune deletes the least recently used layers until the cache is within its limit. Those used
// since the given time are kept: running builds refer to them.
func (c *cache) prune(since time.Time) error {
	type entry struct {
		path string
		info fs.FileInfo
	}
	var all []entry
	var total int64
	err := filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		all, total = append(all, entry{path, info}), total+info.Size()
		return err
	})
	sort.Slice(all, func(i, j int) bool { return all[i].info.ModTime().Before(all[j].info.ModTime()) })
	for _, e := range all {
		old := time.Since(e.info.ModTime())
		leftover := strings.HasPrefix(filepath.Base(e.path), ".new-") && old > 24*time.Hour
		if total <= c.max && !leftover || e.info.ModTime().After(since) {
			continue
		}
		if e := os.Remove(e.path); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
			continue
		}
		total -= e.info.Size()
	}
	return err
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
