// Package folder keeps a folder on this host and one in a sandbox in sync: changes on either
// side are copied to the other. The sandbox is not trusted. Nothing from it is written outside
// the folder, through a link, or where git would execute it.
package folder

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/bothy-dev/bothy"
)

// Limits on what is copied.
const (
	// MaxEntries is how many files and folders there may be on each side.
	MaxEntries = 50_000
	// MaxFile bounds one file that comes out of the sandbox.
	MaxFile = 1 << 30
)

// Files is what a Folder needs of bothy.FileService.
type Files interface {
	Read(ctx context.Context, id, path, user string) (io.ReadCloser, *bothy.FileInfo, error)
	List(ctx context.Context, id, path, user string, depth int) ([]bothy.FileInfo, error)
	Remove(ctx context.Context, id, path, user string) error
	WriteArchive(ctx context.Context, id, path, user string, r io.Reader) error
}

// Options say what is copied.
type Options struct {
	// Local is the folder on this host, absolute and without links, and Inside its
	// path in the sandbox.
	Local, Inside string
	// Sandbox is the sandbox's id, and User the owner of the files in it.
	Sandbox, User string
	// Ignored also carries what .gitignore names.
	Ignored bool
	// Exclude are additional patterns, as in a .gitignore.
	Exclude []string
	// Note is called with messages for the user.
	Note func(format string, args ...any)
}

// Folder is a folder that exists on both sides.
type Folder struct {
	o     Options
	files Files

	mu    sync.Mutex
	rules rules
	base  map[string]pair
	told  map[string]bool
}

// pair is an entry on both sides when they were last the same.
type pair struct {
	Local  entry `json:"local"`
	Remote entry `json:"remote"`
}

// New returns the folder. Nothing is copied until Sync.
func New(files Files, o Options) (*Folder, error) {
	f := &Folder{o: o, files: files, base: map[string]pair{}, told: map[string]bool{}}
	if err := Check(o.Local); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(filepath.Join(o.Local, ".git")); err == nil && !info.IsDir() {
		f.note("%s is a worktree or a submodule, whose repository lies elsewhere: there is none in the sandbox", o.Local)
	}
	var err error
	f.rules, err = newRules(o.Local, o.Exclude, o.Ignored)
	return f, err
}

// Check refuses a folder that is not a project: everything that a person has would be copied.
func Check(local string) error {
	info, err := os.Stat(local)
	if err != nil {
		return fmt.Errorf("cannot carry %s: %w", local, reason(err))
	}
	if !info.IsDir() {
		return fmt.Errorf("cannot carry %s: it is not a folder", local)
	}
	home, err := os.UserHomeDir()
	if err == nil {
		if resolved, err := filepath.EvalSymlinks(home); err == nil {
			home = resolved
		}
	}
	if local == "/" || err == nil && (local == home || strings.HasPrefix(home, local+"/")) {
		return fmt.Errorf("%s is not carried into a sandbox, because all of a person's files are in it: open the folder of one project", local)
	}
	return nil
}

// reason is an error without the path, which the surrounding sentence contains.
func reason(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return e.Err
	}
	return err
}

// Allow says why a file on this host may not be read or written for the sandbox: files that are
// not copied are not accessible in another way either.
func (f *Folder) Allow(local string, write bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, err := filepath.Rel(f.o.Local, local)
	switch {
	case err != nil || !filepath.IsLocal(name) || name == ".":
		return fmt.Errorf("%s is not a file in the folder", local)
	case f.rules.ignored(name, false):
		return fmt.Errorf("%s is ignored, and therefore not carried into the sandbox", name)
	case write:
		if why := refused(name, map[string]entry{name: {Kind: kindFile}}); why != "" {
			return fmt.Errorf("%s is not written for an agent in a sandbox: %s", name, why)
		}
	}
	return nil
}

// Options returns the folder's options.
func (f *Folder) Options() Options { return f.o }

// note tells a person something once.
func (f *Folder) note(format string, args ...any) {
	text := printable(fmt.Sprintf(format, args...))
	if f.o.Note == nil || f.told[text] {
		return
	}
	f.told[text] = true
	f.o.Note("%s", text)
}

// printable drops what would move a terminal's cursor: names come from the sandbox.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

// Kinds of entries.
const (
	kindFile   = "file"
	kindFolder = "folder"
	kindLink   = "link"
)

// entry is compared to detect changes. A zero entry does not exist.
type entry struct {
	Kind   string      `json:"kind,omitempty"`
	Size   int64       `json:"size,omitempty"`
	Mode   fs.FileMode `json:"mode,omitempty"`
	Time   int64       `json:"time,omitempty"` // of the last change, in nanoseconds
	Target string      `json:"target,omitempty"`
}

func (e entry) there() bool { return e.Kind != "" }

func fileEntry(size int64, mode fs.FileMode, at time.Time) entry {
	return entry{Kind: kindFile, Size: size, Mode: mode.Perm(), Time: at.UnixNano()}
}

// localEntry describes an entry on this host, or returns a zero entry if it is not copied.
func localEntry(name string, info fs.FileInfo) (entry, error) {
	switch info.Mode().Type() {
	case 0:
		return fileEntry(info.Size(), info.Mode(), info.ModTime()), nil
	case fs.ModeDir:
		return entry{Kind: kindFolder}, nil
	case fs.ModeSymlink:
		target, err := os.Readlink(name)
		return entry{Kind: kindLink, Target: target}, err
	}
	return entry{}, nil
}

// scan returns the content of the folder on this host.
func (f *Folder) scan(ctx context.Context) (map[string]entry, error) {
	found := map[string]entry{}
	err := filepath.WalkDir(f.o.Local, func(full string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		name, relErr := filepath.Rel(f.o.Local, full)
		if relErr != nil {
			return relErr
		}
		switch {
		case err != nil && name == ".":
			return err
		case err != nil:
			f.note("left out %s: %v", name, reason(err))
			return skip(d)
		case name == ".":
			return nil
		case f.rules.ignored(name, d.IsDir()):
			return skip(d)
		case !utf8.ValidString(name):
			f.note("left out %s: its name is not UTF-8", name)
			return skip(d)
		}
		info, err := d.Info()
		if err != nil {
			return nil // gone by now
		}
		e, err := localEntry(full, info)
		if err != nil || !e.there() {
			f.note("left out %s: it is neither a file, a folder nor a link", name)
			return nil
		}
		if found[name] = e; len(found) > MaxEntries {
			return fmt.Errorf("%s has more than %d entries, too many to carry: leave some out with --exclude, or open a folder further down", f.o.Local, MaxEntries)
		}
		return nil
	})
	return found, err
}

func skip(d fs.DirEntry) error {
	if d != nil && d.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// list returns the content of the folder in the sandbox.
func (f *Folder) list(ctx context.Context) (map[string]entry, error) {
	found := map[string]entry{}
	return found, f.listBelow(ctx, found, "")
}

// listBelow lists everything below a folder at once. If that is too much, it descends step by
// step, skipping what is ignored.
func (f *Folder) listBelow(ctx context.Context, found map[string]entry, name string) error {
	dir := path.Join(f.o.Inside, name)
	const deep = 64
	infos, err := f.files.List(ctx, f.o.Sandbox, dir, f.o.User, deep)
	if bothy.ErrorCode(err) != bothy.CodeTooLarge {
		f.take(found, infos)
		return err
	}
	if infos, err = f.files.List(ctx, f.o.Sandbox, dir, f.o.User, 1); err != nil {
		return err
	}
	f.take(found, infos)
	if len(found) > MaxEntries {
		return fmt.Errorf("the folder has more than %d entries in the sandbox, too many to carry: have the agent name in .gitignore what it builds", MaxEntries)
	}
	for _, info := range infos {
		below := f.name(info)
		if e := found[below]; e.Kind == kindFolder {
			if err := f.listBelow(ctx, found, below); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Folder) name(info bothy.FileInfo) string {
	return strings.TrimPrefix(strings.TrimPrefix(info.Path, f.o.Inside), "/")
}

// take adds entries that are not ignored to found. A folder comes before its
// content.
func (f *Folder) take(found map[string]entry, infos []bothy.FileInfo) {
	for _, info := range infos {
		name := f.name(info)
		if !filepath.IsLocal(name) || path.Clean(name) != name || strings.ContainsRune(name, utf8.RuneError) {
			f.note("left out %s in the sandbox: its name cannot be carried", name)
			continue
		}
		if f.rules.ignored(name, info.Type == bothy.FileDirectory) {
			continue
		}
		switch info.Type {
		case bothy.FileRegular:
			found[name] = fileEntry(info.Size, perm(info.Mode), info.ModifiedAt)
		case bothy.FileDirectory:
			found[name] = entry{Kind: kindFolder}
		case bothy.FileSymlink:
			found[name] = entry{Kind: kindLink, Target: info.LinkTarget}
		default:
			f.note("left out %s in the sandbox: it is neither a file, a folder nor a link", name)
		}
	}
}

// perm parses permission bits in octal.
func perm(mode string) fs.FileMode {
	n, err := strconv.ParseUint(mode, 8, 32)
	if err != nil {
		return 0o644
	}
	return fs.FileMode(n).Perm()
}
