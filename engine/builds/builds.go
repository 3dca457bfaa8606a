// Package builds keeps the programs and images that engines are made of, so that a
// snapshot's memory is restored by the build that wrote it, even after an upgrade. Engines
// and the packages server and cli use it.
//
// A store is one folder. Its files carry their SHA-256 in their names, and are written
// atomically:
//
//	sentry-SHA256, guest-SHA256.erofs, …   what builds are made of; builds may share them
//	tree-SHA256/                           folders made of such files, as hard links
//	builds/NAME.json                       a record for each build, which names its files
//
// Files are written before the record that names them, and removed after it. So a server
// that is killed leaves files that no record names, which the next sweep removes, and never
// a record whose files are missing.
//
// A build is kept while a machine of it lives (see Hold) or it is reported as needed (see
// Sweep). The newest build of each engine is always kept.
package builds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// Build is what is recorded of one build of an engine.
type Build struct {
	// Name is bothy.EngineInfo.Build, and Engine bothy.EngineInfo.Name.
	Name   string `json:"name"`
	Engine string `json:"engine"`
	// Versions are what its parts call themselves, such as that of the gVisor library.
	Versions []string `json:"versions"`
	// Protocol is the version of the protocol between the server and the build's
	// processes: arguments, files, calls, and the guest's API.
	Protocol int `json:"protocol"`
	// Host describes what its snapshots depend on in the host; empty if nothing matters.
	Host string `json:"host,omitempty"`
	// Env is the environment that its tree's program is run in.
	Env   []string `json:"env,omitempty"`
	Files []File   `json:"files"`
	// Tree is the folder of the files that have a place in it, and Dirs are its empty folders.
	Tree string   `json:"tree,omitempty"`
	Dirs []string `json:"dirs,omitempty"`
	// Stamp identifies what the files were made from, by dates and sizes.
	Stamp     string    `json:"stamp,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// File is one file of a build.
type File struct {
	// Role is the engine's name for it. Files in the tree have a Place instead.
	Role  string `json:"role,omitempty"`
	Place string `json:"place,omitempty"`
	// Name is the file's name in the store's folder.
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size_bytes"`
}

// Size adds up a build's files.
func (b *Build) Size() (n int64) {
	for _, f := range b.Files {
		n += f.Size
	}
	return n
}

// Range are the versions of a protocol that a server speaks.
type Range struct{ Oldest, Newest int }

// Options say what a store may be used for.
type Options struct {
	// Speaks are the protocols of each engine.
	Speaks map[string]Range
	// Refuse names builds whose memory must not be restored; see refusedBy.
	Refuse []string
	// MaxBytes bounds the builds of earlier servers; 0 means no bound.
	MaxBytes int64
	// Fetch writes the files of a build that other hosts have published into a folder, under
	// their names, and returns its record, which must come from where only hosts can write. It
	// is nil if this host is alone.
	Fetch func(name, dir string) (*Build, error)
	// Elsewhere reports whether a build can be fetched again. Where there is Fetch, one that
	// snapshots need and that cannot stays beyond MaxBytes.
	Elsewhere func(ctx context.Context, name string) (bool, error)
	Log       *slog.Logger
}

// Store keeps builds. One process at a time may have a folder open; its methods may be
// called from many goroutines at once.
type Store struct {
	dir string
	o   Options

	mu sync.Mutex
	// pinned are the names of the files that this server brought along.
	pinned map[string]bool
	// own are the builds that this server put, by engine.
	own map[string]string
	// holds counts how often builds are held, with their records; touched are those
	// held at any time since the last sweep began.
	holds   map[string]*held
	touched map[string]bool
	// verified are files whose SHA-256 was right, as they were at that time.
	verified map[string]os.FileInfo
	// fetches are the attempts to fetch builds that other hosts have, by name.
	fetches map[string]*fetch
	// sweeping is locked during a sweep, placing while a fetched build is moved into place, and
	// making while a tree is made. Each is locked before mu.
	sweeping, placing, making sync.Mutex
}

type held struct {
	Build
	n int
}

const recordsDir = "builds"

// Open returns the store in a folder, which it makes.
func Open(dir string, o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for _, d := range []string{dir, filepath.Join(dir, recordsDir)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
		// Anyone who could write here could run their own program.
		if err := os.Chmod(d, 0o755); err != nil {
			return nil, err
		}
	}
	s := &Store{
		dir: dir, o: o, pinned: map[string]bool{}, own: map[string]string{}, holds: map[string]*held{},
		touched: map[string]bool{}, verified: map[string]os.FileInfo{}, fetches: map[string]*fetch{},
	}
	return s, s.removeUnfinished()
}

// removeUnfinished removes what a killed server left half done.
func (s *Store) removeUnfinished() error {
	var errs []error
	for _, dir := range []string{s.dir, filepath.Join(s.dir, recordsDir)} {
		entries, err := os.ReadDir(dir)
		errs = append(errs, err)
		for _, e := range entries {
			for _, prefix := range []string{newPrefix, extractPrefix, goingPrefix} {
				if strings.HasPrefix(e.Name(), prefix) {
					errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// Dir returns the store's folder.
func (s *Store) Dir() string { return s.dir }

// Pin keeps files in the store as long as this server runs, even before a build names them.
func (s *Store) Pin(paths ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range paths {
		s.pinned[filepath.Base(p)] = true
	}
}

// A Held build is kept until it is released.
type Held struct {
	Build
	s    *Store
	once sync.Once
}

// Hold checks that memory written by a build may be restored here, and keeps the build until it
// is released. The error has CodeUnsupported, and its detail is the reason, worded as the end of
// a sentence about the memory.
func (s *Store) Hold(engine, name string) (*Held, error) {
	if by := s.refused(name, nil); by != "" {
		return nil, refusedError(name, by)
	}
	s.fetchMissing(name)
	s.mu.Lock()
	s.touched[name] = true // from here on, a sweep in progress leaves it alone
	b, err := s.read(name)
	if err != nil {
		s.mu.Unlock()
		return nil, Unusable("which this server has not kept").Because(err)
	}
	h := s.holds[name]
	if h == nil {
		h = &held{}
		s.holds[name] = h
	}
	h.Build = *b
	h.n++
	s.mu.Unlock()
	out := &Held{Build: *b, s: s}
	if err := s.check(engine, b); err != nil {
		out.Release()
		return nil, err
	}
	now := time.Now()
	_ = os.Chtimes(s.record(name), now, now) // these are removed first when there are too many
	return out, nil
}

// Release lets a sweep remove the build. A nil one holds nothing.
func (h *Held) Release() {
	if h == nil {
		return
	}
	h.once.Do(func() {
		s := h.s
		s.mu.Lock()
		defer s.mu.Unlock()
		if x := s.holds[h.Name]; x != nil {
			if x.n--; x.n == 0 {
				delete(s.holds, h.Name)
			}
		}
	})
}

// Path returns the path of the file with a role, or "".
func (h *Held) Path(role string) string {
	for _, f := range h.Files {
		if f.Role == role {
			return filepath.Join(h.s.dir, f.Name)
		}
	}
	return ""
}

// TreePath returns the path of the tree, or "".
func (h *Held) TreePath() string {
	if h.Tree == "" {
		return ""
	}
	return filepath.Join(h.s.dir, h.Tree)
}

// check says why a build may not be used.
func (s *Store) check(engine string, b *Build) error {
	if b.Engine != engine {
		return Unusable("which is of the engine %s", b.Engine)
	}
	if by := s.refused(b.Name, b); by != "" {
		return refusedError(b.Name, by)
	}
	if r, ok := s.o.Speaks[engine]; ok && (b.Protocol < r.Oldest || b.Protocol > r.Newest) {
		return Unusable("which speaks version %d of the engine's protocol, and this server speaks %s", b.Protocol, r)
	}
	if err := s.verify(b); err != nil {
		s.o.Log.Error("a kept engine build cannot be used", "build", b.Name, "error", err)
		return Unusable("whose programs on this host are damaged").Because(err)
	}
	return nil
}

func (r Range) String() string {
	if r.Oldest == r.Newest {
		return fmt.Sprint(r.Oldest)
	}
	return fmt.Sprintf("%d to %d", r.Oldest, r.Newest)
}

// Unusable returns the error for memory whose build cannot be used, with the reason worded as
// the end of a sentence about the memory.
func Unusable(why string, args ...any) *bothy.Error {
	return bothy.Errorf(bothy.CodeUnsupported, why, args...).WithHint("Use the files of the snapshot.")
}

// List reads the records in a store's folder, the newest first. It needs no open store.
func List(dir string) ([]Build, error) {
	paths, err := filepath.Glob(filepath.Join(dir, recordsDir, "*.json"))
	if err != nil {
		return nil, err
	}
	type dated struct {
		Build
		used time.Time
	}
	var all []dated
	for _, path := range paths {
		b, err := readRecord(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // just removed
		}
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(path)
		if err == nil {
			all = append(all, dated{*b, info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b dated) int {
		return cmp.Or(b.used.Compare(a.used), strings.Compare(a.Name, b.Name))
	})
	list := make([]Build, len(all))
	for i, d := range all {
		list[i] = d.Build
	}
	return list, nil
}
