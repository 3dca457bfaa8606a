package template

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/bothy-dev/bothy/store"
)

const (
	// settled is the age from which a file's time proves that it was not changed since: file
	// system clocks are coarse.
	settled = 2 * time.Second
	// maxKept limits the cache, for libraries whose templates are often rebuilt.
	maxKept = 256
)

// shelf caches template manifests by path: every new sandbox needs one.
type shelf struct {
	mu  sync.Mutex
	all map[string]kept
}

// kept is a verified version, with the state of its files at that time.
type kept struct {
	template        *store.Template
	manifest, image os.FileInfo
}

// get returns a copy of the cached entry, unless the files have changed.
func (s *shelf) get(path string) *store.Template {
	s.mu.Lock()
	k, ok := s.all[path]
	s.mu.Unlock()
	if !ok || !unchanged(filepath.Join(path, manifestName), k.manifest) || !unchanged(filepath.Join(path, imageName), k.image) {
		return nil
	}
	return clone(k.template)
}

func (s *shelf) put(path string, k kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(k.manifest.ModTime()) < settled || time.Since(k.image.ModTime()) < settled {
		delete(s.all, path)
		return
	}
	if s.all == nil || len(s.all) >= maxKept {
		s.all = map[string]kept{}
	}
	k.template = clone(k.template)
	s.all[path] = k
}

func unchanged(path string, was os.FileInfo) bool {
	is, err := os.Stat(path)
	return err == nil && os.SameFile(was, is) && is.Size() == was.Size() && is.ModTime().Equal(was.ModTime())
}

func clone(t *store.Template) *store.Template {
	c := *t
	c.Env, c.Packages = maps.Clone(t.Env), maps.Clone(t.Packages)
	c.Entrypoint, c.Languages, c.Warm = slices.Clone(t.Entrypoint), slices.Clone(t.Languages), slices.Clone(t.Warm)
	return &c
}
