package builds

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy/internal/wholefile"
)

// fetchAgain is how long to wait before another attempt to fetch a build that could not be
// fetched.
const fetchAgain = 3 * time.Second

// fetch is the latest attempt to fetch a build, shared by all who need the build meanwhile. It
// is forgotten once it succeeds.
type fetch struct {
	done  chan struct{}
	ended time.Time
}

// fetchMissing fetches a build that this store has no record of, if other hosts have it. If that fails,
// the build counts as one that was not kept.
func (s *Store) fetchMissing(name string) {
	if s.o.Fetch == nil || !isName(name) {
		return
	}
	missing := func() bool {
		_, err := os.Stat(s.record(name))
		return errors.Is(err, fs.ErrNotExist)
	}
	if !missing() {
		return
	}
	s.mu.Lock()
	f := s.fetches[name]
	if f != nil && (f.ended.IsZero() || time.Since(f.ended) < fetchAgain) {
		s.mu.Unlock()
		<-f.done
		return
	}
	f = &fetch{done: make(chan struct{})}
	s.fetches[name] = f
	s.mu.Unlock()
	var err error
	defer func() {
		s.mu.Lock()
		f.ended = time.Now()
		if err == nil {
			delete(s.fetches, name)
		}
		s.mu.Unlock()
		close(f.done)
	}()
	if !missing() {
		return // another has brought it meanwhile
	}
	begun := time.Now()
	var b *Build
	b, err = s.fetchNow(name)
	if err != nil {
		s.o.Log.Warn("an engine build could not be fetched", "build", name, "error", err)
		return
	}
	s.o.Log.Info("an engine build was fetched", "build", name, "mb", b.Size()>>20, "ms", time.Since(begun).Milliseconds())
}

func isName(name string) bool {
	return name != "" && !strings.HasPrefix(name, ".") && !strings.ContainsAny(name, "/\x00")
}

func (s *Store) fetchNow(name string) (*Build, error) {
	dir, err := os.MkdirTemp(s.dir, newPrefix)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b, err := s.o.Fetch(name, dir)
	if err != nil {
		return nil, err
	}
	if b.Name != name {
		return nil, fmt.Errorf("what was fetched is %q", b.Name)
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	s.placing.Lock() // if two builds share a file, one would unpin it for both
	defer s.placing.Unlock()
	for _, f := range b.Files {
		s.Pin(f.Name) // no record names it yet
	}
	s.Pin(b.Tree)
	for _, f := range b.Files {
		if err := s.takeFile(dir, f); err != nil {
			return nil, err
		}
	}
	if err := s.makeTree(b); err != nil {
		return nil, err
	}
	if err := wholefile.Sync(s.dir); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return nil, err
	}
	err = wholefile.Write(s.record(b.Name), append(data, '\n'), 0o644)
	s.unpin(b)
	return b, err
}

// unpin lets a later sweep remove the files of a build, except those that this server brought
// along. Those of its own builds are named by their records.
func (s *Store) unpin(b *Build) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := map[string]bool{}
	for _, name := range s.own {
		if o, err := s.read(name); err == nil {
			own[o.Tree] = true
			for _, f := range o.Files {
				own[f.Name] = true
			}
		}
	}
	for _, f := range b.Files {
		if !own[f.Name] {
			delete(s.pinned, f.Name)
		}
	}
	if !own[b.Tree] {
		delete(s.pinned, b.Tree)
	}
}

// takeFile moves a fetched file into the store, unless it is there whole already.
func (s *Store) takeFile(dir string, f File) error {
	to := filepath.Join(s.dir, f.Name)
	if whole(to, f) {
		return nil
	}
	from := filepath.Join(dir, f.Name)
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() != f.Size || !whole(from, f) {
		return fmt.Errorf("the file that was fetched as %s does not match its SHA-256", f.Name)
	}
	if err := os.Chmod(from, f.mode()); err != nil {
		return err
	}
	if err := wholefile.Sync(from); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// mode is the mode of a file in the store, by its name: some are programs.
func (f File) mode() fs.FileMode {
	for _, kind := range []string{"program-", "sentry-", "vminit-"} {
		if strings.HasPrefix(f.Name, kind) {
			return 0o755
		}
	}
	return 0o644
}

// Missing returns the names of a build's files that this store does not have.
func (s *Store) Missing(b *Build) (files []File) {
	for _, f := range b.Files {
		if !whole(filepath.Join(s.dir, f.Name), f) && !slices.ContainsFunc(files, func(o File) bool { return o.Name == f.Name }) {
			files = append(files, f)
		}
	}
	return files
}

// OpenFile opens a file of a build for another host. It returns fs.ErrNotExist if there is none.
func (s *Store) OpenFile(build, name string) (*os.File, error) {
	s.mu.Lock()
	b, err := s.read(build)
	s.mu.Unlock()
	if err != nil || !slices.ContainsFunc(b.Files, func(f File) bool { return f.Name == name }) {
		return nil, fs.ErrNotExist
	}
	return os.Open(filepath.Join(s.dir, name))
}
