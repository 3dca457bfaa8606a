package folder

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/bothy-dev/bothy"
)

// writer writes files from the sandbox. Everything goes through os.Root, so that no path
// leads out of the folder.
type writer struct {
	*Folder
	root   *os.Root
	local  map[string]entry
	report Report
	// back are the entries of which this host's version replaces the sandbox's, after a conflict.
	back []string
}

func newWriter(f *Folder, local map[string]entry) (*writer, error) {
	root, err := os.OpenRoot(f.o.Local)
	if err != nil {
		return nil, fmt.Errorf("cannot carry %s: %w", f.o.Local, reason(err))
	}
	return &writer{Folder: f, root: root, local: local}, nil
}

func (w *writer) close() { w.root.Close() }

// pull copies entries out of the sandbox: first removals, the deepest first, and then the rest,
// folders before their content.
func (w *writer) pull(ctx context.Context, names []string, remote map[string]entry) error {
	for _, name := range slices.Backward(names) {
		if !remote[name].there() {
			w.remove(name)
		}
	}
	var links []string
	for _, name := range names {
		switch r := remote[name]; r.Kind {
		case kindFolder:
			w.folder(name, r)
		case kindLink:
			links = append(links, name)
		case kindFile:
			if err := w.file(ctx, name, r); err != nil {
				return err
			}
		}
	}
	for _, name := range links {
		if err := w.link(name, remote[name]); err != nil {
			return err
		}
	}
	return nil
}

// settle records that both sides are in sync as they are.
func (w *writer) settle(name string, remote entry) {
	now := w.now(name)
	w.base[name] = pair{Local: now, Remote: remote}
}

// now is the current state of an entry on this host.
func (w *writer) now(name string) entry {
	info, err := w.root.Lstat(name)
	if err != nil {
		return entry{}
	}
	e, _ := localEntry(filepath.Join(w.o.Local, name), info)
	return e
}

// unchanged reports whether an entry of this host is still as it was copied in.
func (w *writer) unchanged(name string) bool { return w.now(name) == w.base[name].Local }

// within reports whether the parent folders are folders, and not links.
func (w *writer) within(name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if info, err := w.root.Lstat(dir); err != nil || !info.IsDir() {
			return false
		}
	}
	return true
}

func (w *writer) remove(name string) {
	if !w.within(name) || !w.now(name).there() {
		delete(w.base, name)
		return
	}
	if !w.unchanged(name) {
		w.note("kept %s: the agent has removed it, and it was changed here meanwhile", name)
		delete(w.base, name)
		return
	}
	err := w.root.Remove(name)
	switch {
	case errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST):
		w.note("kept the folder %s: the agent has removed it, and there are files in it that were not carried", name)
		w.base[name] = pair{Local: w.now(name)}
	case err != nil:
		w.note("cannot remove %s, as the agent did: %v", name, reason(err))
	default:
		delete(w.base, name)
		w.report.Out++
	}
}

func (w *writer) folder(name string, r entry) {
	if w.now(name).Kind == kindFolder {
		w.settle(name, r)
		return
	}
	if w.within(name) {
		if err := w.clear(name); err == nil {
			if err := w.root.Mkdir(name, 0o755); err == nil {
				w.settle(name, r)
				w.report.Out++
				return
			}
		}
	}
	w.note("left the folder %s in the sandbox: something else is in its place here", name)
}

// clear makes room for an entry of another kind, if the old one has not changed since it
// was copied in.
func (w *writer) clear(name string) error {
	now := w.now(name)
	if !now.there() {
		return nil
	}
	if now != w.base[name].Local {
		return fs.ErrExist
	}
	return w.root.Remove(name)
}

// link copies a link. One that is not made here stays in the sandbox, until this host's version
// is changed as well.
func (w *writer) link(name string, r entry) error {
	now := w.now(name)
	if now == r {
		w.settle(name, r)
		return nil
	}
	why, free := refusedLink(name, r.Target), w.within(name)
	switch {
	case !free:
		why = "something else is in its place here"
	case now.there() && (now != w.base[name].Local || why == "" && w.clear(name) != nil):
		return w.linkConflict(name, r, why)
	case why == "":
		if err := w.root.Symlink(r.Target, name); err == nil {
			w.settle(name, r)
			w.report.Out++
			return nil
		}
		why = "it cannot be made here"
	}
	w.note("left the link %s in the sandbox: %s", name, why)
	return nil
}

// linkConflict puts a link of the sandbox next to this host's version. If it may not be made
// here, the note says where it led.
func (w *writer) linkConflict(name string, r entry, why string) error {
	to := w.aside(name)
	if why == "" {
		if err := w.root.Symlink(r.Target, to); err != nil {
			return fmt.Errorf("cannot write %s: %w", filepath.Join(w.o.Local, to), reason(err))
		}
		w.note("%s was changed here and in the sandbox: kept this host's, and put the other one into %s", name, to)
	} else {
		w.note("%s was changed here and in the sandbox: kept this host's, and left out the other one: %s", name, why)
	}
	w.prevail(name, r)
	return nil
}

// file fetches a file into a temporary one, and renames that to its final name.
func (w *writer) file(ctx context.Context, name string, r entry) error {
	if r.Size > MaxFile {
		w.note("left %s in the sandbox: it has %d bytes, more than the %d that are carried", name, r.Size, int64(MaxFile))
		return nil
	}
	if !w.within(name) {
		w.note("left %s in the sandbox: what is above it is no folder here", name)
		return nil
	}
	temporary := path.Join(path.Dir(name), ".bothy-"+rand.Text())
	mode := w.mode(name, r)
	sum, err := w.fetch(ctx, name, temporary, r, mode)
	defer w.root.Remove(temporary) // it exists only if something failed
	var failed *localError
	switch {
	case errors.As(err, &failed):
		return fmt.Errorf("cannot write %s: %w", filepath.Join(w.o.Local, name), failed.err)
	case errors.Is(err, errMoving):
		return nil // a file that is still being written is copied the next time
	case isUnreadable(err):
		w.note("left %s in the sandbox: %v", name, err)
		return nil
	case err != nil:
		return err
	}
	now := w.now(name)
	switch {
	case now.Kind == kindFile && bytes.Equal(sum, w.sum(name)):
		if now.Mode == mode || !w.unchanged(name) || w.root.Chmod(name, mode) == nil {
			w.settle(name, r)
		}
		return nil
	case now != w.base[name].Local && now.there():
		return w.conflict(name, temporary, r)
	case now != w.base[name].Local:
		w.note("brought %s back: it was removed here, and the agent has changed it", name)
	}
	if now.there() && now.Kind != kindFile {
		if err := w.clear(name); err != nil {
			return w.conflict(name, temporary, r)
		}
	}
	if err := w.root.Rename(temporary, name); err != nil {
		return fmt.Errorf("cannot write %s: %w", filepath.Join(w.o.Local, name), reason(err))
	}
	w.settle(name, r)
	w.report.Out++
	w.report.Bytes += r.Size
	return nil
}

// mode returns the local permission bits of a file. They are kept if the agent has not changed
// them, and never give other users write permission.
func (w *writer) mode(name string, r entry) fs.FileMode {
	if b := w.base[name]; b.Local.Kind == kindFile && b.Remote.Mode == r.Mode {
		return b.Local.Mode
	}
	return r.Mode &^ 0o022
}

// conflict keeps both versions: this host's in its place, on both sides, and the sandbox's next
// to it.
func (w *writer) conflict(name, temporary string, r entry) error {
	to := w.aside(name)
	if err := w.root.Rename(temporary, to); err != nil {
		return fmt.Errorf("cannot write %s: %w", filepath.Join(w.o.Local, to), reason(err))
	}
	w.note("%s was changed here and in the sandbox: kept this host's, and put the other one into %s", name, to)
	w.prevail(name, r)
	return nil
}

// aside is a free name for the sandbox's version.
func (w *writer) aside(name string) string {
	to := name + ".from-sandbox"
	for i := 2; w.now(to).there(); i++ {
		to = fmt.Sprintf("%s.from-sandbox-%d", name, i)
	}
	return to
}

// prevail lets this host's version replace the sandbox's, so that the agent continues from what
// the user has. What is ignored here is not carried.
func (w *writer) prevail(name string, r entry) {
	w.report.Conflicts = append(w.report.Conflicts, name)
	w.base[name] = pair{Remote: r}
	if now := w.now(name); !w.rules.ignored(name, now.Kind == kindFolder) {
		w.local[name] = now
		w.back = append(w.back, name)
	}
}

// errMoving is the error for a file that changes while it is read.
var errMoving = errors.New("it is being written")

// localError is a failure of this host's file system.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }

// isUnreadable reports whether a file of the sandbox could not be read, for a reason of its own.
func isUnreadable(err error) bool {
	switch bothy.ErrorCode(err) {
	case bothy.CodeFileNotFound, bothy.CodePathInvalid, bothy.CodePermission:
		return true
	}
	return false
}

// fetch reads a file of the sandbox into a new one, and returns the checksum.
func (w *writer) fetch(ctx context.Context, name, to string, r entry, mode fs.FileMode) ([]byte, error) {
	in, _, err := w.files.Read(ctx, w.o.Sandbox, path.Join(w.o.Inside, name), w.o.User)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := w.root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, &localError{reason(err)}
	}
	defer out.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(&localWriter{out}, sum), io.LimitReader(in, r.Size+1))
	if err != nil {
		return nil, err
	}
	if n != r.Size {
		return nil, errMoving
	}
	if err := errors.Join(out.Chmod(mode), out.Close()); err != nil {
		return nil, &localError{reason(err)}
	}
	return sum.Sum(nil), nil
}

// localWriter distinguishes failures to write from failures to read.
type localWriter struct{ w io.Writer }

func (l *localWriter) Write(p []byte) (int, error) {
	n, err := l.w.Write(p)
	if err != nil {
		err = &localError{reason(err)}
	}
	return n, err
}

// sum returns the checksum of a file of this host, or nil.
func (w *writer) sum(name string) []byte {
	f, err := w.root.OpenFile(name, os.O_RDONLY|nofollow, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil
	}
	return h.Sum(nil)
}
