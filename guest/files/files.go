// Package files reads and changes the sandbox's file system on behalf of its
// users. Only the guest's agent uses it.
//
// Every path is walked with the rights of the calling user. Names are untrusted
// and files change concurrently, so nothing that matters is checked by name and
// then used by name.
package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
)

const (
	// MaxEntries bounds one listing.
	MaxEntries = 50_000
	// maxPath is the kernel's own bound.
	maxPath = 4096
)

// FS is the file system as its users see it. Its methods may be called from
// many goroutines at once. A nil user means the agent itself.
type FS struct {
	accounts   *account.DB
	privileged bool
	groups     []uint32 // the agent's own
}

// New returns the file system of this process.
func New(accounts *account.DB) *FS {
	f := &FS{accounts: accounts, privileged: os.Geteuid() == 0}
	groups, _ := unix.Getgroups()
	for _, g := range groups {
		f.groups = append(f.groups, uint32(g))
	}
	return f
}

// Info describes one entry.
type Info struct {
	Name, Path string
	Kind       bothy.FileType
	// Target is, for a symbolic link, the kind of its target, and otherwise
	// Kind.
	Target     bothy.FileType
	Size       int64
	Mode       fs.FileMode
	UID, GID   uint32
	Owner      string
	Group      string
	ModifiedAt time.Time
	LinkTarget string
	// Escaped is true where Name or Path on disk are not UTF-8.
	Escaped bool
}

// Resolve makes a path absolute: a relative one starts at base. It refuses
// what cannot be a path.
func Resolve(base, path string) (string, error) {
	invalid := func(why string) (string, error) {
		return "", bothy.Errorf(bothy.CodePathInvalid, "the path %s %s", quote(path), why).
			WithHint("Give an absolute path, or one relative to %s, in UTF-8.", base)
	}
	switch {
	case path == "":
		return invalid("is empty")
	case strings.ContainsRune(path, 0):
		return invalid("holds a NUL byte")
	case !utf8.ValidString(path):
		return invalid("is not UTF-8")
	case len(path) > maxPath:
		return invalid("is too long")
	case filepath.IsAbs(path):
		return filepath.Clean(path), nil
	}
	return filepath.Join(base, path), nil
}

// quote formats a path for an error, truncated if it is long.
func quote(path string) string {
	if len(path) > 200 {
		return strconv.Quote(path[:200]) + "…"
	}
	return strconv.Quote(path)
}

// as runs fn with the rights of a user. Credentials belong to a thread, so fn has a thread to
// itself, and it must not start goroutines that need the user.
//
// The real and saved ids remain root's: this allows the rights to be restored, and keeps the
// user's own processes from touching the thread.
func (f *FS) as(u *account.User, fn func() error) error {
	if u == nil || u.UID == 0 || !f.privileged {
		return fn()
	}
	runtime.LockOSThread()
	err := assumeUser(u)
	defer func() {
		if e := restoreUser(f.groups); e != nil {
			// The thread stays locked, so it ends with this goroutine.
			panic("cannot take root's rights back: " + e.Error())
		}
		runtime.UnlockOSThread()
	}()
	if err != nil {
		return bothy.Errorf(bothy.CodePermission, "files cannot be used as %q here", u.Name).Because(err)
	}
	return fn()
}

const unchanged = ^uintptr(0)

// assumeUser gives this thread, and no other, a user's effective ids.
func assumeUser(u *account.User) error {
	if err := setGroups(u.Groups); err != nil {
		return err
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, unchanged, uintptr(u.GID), unchanged); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, unchanged, uintptr(u.UID), unchanged); e != 0 {
		return e
	}
	return nil
}

func restoreUser(groups []uint32) error {
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, unchanged, 0, unchanged); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, unchanged, 0, unchanged); e != 0 {
		return e
	}
	return setGroups(groups)
}

// Stat describes an entry, not the target of a symbolic link.
func (f *FS) Stat(u *account.User, path string) (Info, error) {
	var info Info
	err := f.as(u, func() (err error) {
		info, err = f.stat(path)
		return err
	})
	return info, pathError(path, err)
}

func (f *FS) stat(path string) (Info, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return Info{}, err
	}
	return f.info(path, st), nil
}

func (f *FS) info(path string, st fs.FileInfo) Info { return describe(f.accounts.Names(), path, st) }

// describe completes the result of lstat. It runs with the user's rights.
func describe(names account.Names, path string, st fs.FileInfo) Info {
	i := Info{
		Name: filepath.Base(path), Path: path, Kind: kind(st.Mode()), Size: st.Size(),
		Mode: st.Mode(), ModifiedAt: st.ModTime(),
	}
	if sys, ok := st.Sys().(*sysStat); ok {
		i.UID, i.GID = sys.Uid, sys.Gid
	}
	i.Owner, i.Group = names.User(i.UID), names.Group(i.GID)
	i.Target = i.Kind
	if i.Kind == bothy.FileSymlink {
		i.LinkTarget, _ = os.Readlink(path)
		if t, err := os.Stat(path); err == nil {
			i.Target = kind(t.Mode())
		}
	}
	i.escape()
	return i
}

// escape makes a name valid text: names on disk may be any bytes.
func (i *Info) escape() {
	for _, s := range []*string{&i.Name, &i.Path, &i.LinkTarget} {
		if !utf8.ValidString(*s) {
			*s, i.Escaped = quoted(*s), true
		}
	}
	i.Owner, i.Group = strings.ToValidUTF8(i.Owner, "?"), strings.ToValidUTF8(i.Group, "?")
}

// quoted is a name with what is not text escaped.
func quoted(name string) string {
	q := strconv.Quote(name)
	return q[1 : len(q)-1]
}

// Resolve returns the absolute path that a symbolic link leads to, or its own path if it leads nowhere
// that the user can see.
func (f *FS) Resolve(u *account.User, path string) string {
	to := path
	_ = f.as(u, func() error {
		if at, err := filepath.EvalSymlinks(path); err == nil {
			to = at
		}
		return nil
	})
	if !utf8.ValidString(to) {
		return quoted(to)
	}
	return to
}

func kind(m fs.FileMode) bothy.FileType {
	switch {
	case m.IsRegular():
		return bothy.FileRegular
	case m.IsDir():
		return bothy.FileDirectory
	case m&fs.ModeSymlink != 0:
		return bothy.FileSymlink
	}
	return bothy.FileOther
}

// List returns the entries of a folder, depth levels deep, each folder before
// its content, sorted by name.
func (f *FS) List(u *account.User, path string, depth int) ([]Info, error) {
	var list []Info
	err := f.as(u, func() (err error) {
		list, err = listing{f.accounts.Names()}.below(list, path, max(depth, 1), true)
		return err
	})
	if err != nil {
		return nil, pathError(path, err)
	}
	return list, nil
}

// listing is one walk through folders.
type listing struct{ names account.Names }

func (l listing) below(list []Info, dir string, depth int, top bool) ([]Info, error) {
	names, err := readNames(dir, MaxEntries-len(list))
	if err != nil {
		if !top && (errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)) {
			return list, nil // a nested folder that is unreadable, or was removed meanwhile
		}
		return list, err
	}
	for _, name := range names {
		st, err := os.Lstat(dir + "/" + name)
		if err != nil {
			continue // removed meanwhile
		}
		info := describe(l.names, dir+"/"+name, st)
		if dir == "/" {
			info.Path = strings.TrimPrefix(info.Path, "/")
		}
		list = append(list, info)
		if depth > 1 && info.Kind == bothy.FileDirectory {
			if list, err = l.below(list, dir+"/"+name, depth-1, false); err != nil {
				return list, err
			}
		}
	}
	return list, nil
}

// readNames returns the sorted names in a folder, and CodeTooLarge if there are more than limit.
func readNames(dir string, limit int) ([]string, error) {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(limit + 1)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if len(names) > limit {
		return nil, bothy.Errorf(bothy.CodeTooLarge, "there are more than %d entries below %s", MaxEntries, quote(dir)).
			WithHint("List a folder further down or with less depth, or run `find` in the sandbox.")
	}
	slices.Sort(names)
	return names, nil
}

// Mkdir makes a folder and those above it.
func (f *FS) Mkdir(u *account.User, path string, existOK bool) (Info, error) {
	var info Info
	err := f.as(u, func() error {
		if st, err := os.Stat(path); err == nil {
			if !st.IsDir() || !existOK {
				return unix.EEXIST
			}
		} else if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		var err error
		info, err = f.stat(path)
		return err
	})
	return info, pathError(path, err)
}

// Remove deletes a file, or a folder with all that is in it.
func (f *FS) Remove(u *account.User, path string, mustExist bool) error {
	if path == "/" {
		return bothy.Errorf(bothy.CodePathInvalid, "the root folder cannot be removed").
			WithHint("Terminate the sandbox instead.")
	}
	return pathError(path, f.as(u, func() error {
		if _, err := os.Lstat(path); err != nil && mustExist {
			return err
		}
		return os.RemoveAll(path)
	}))
}

// Move renames an entry, making the parent folders of its new place. Between file systems it
// copies.
func (f *FS) Move(u *account.User, from, to string) (Info, error) {
	var info Info
	err := f.as(u, func() error {
		if _, err := os.Lstat(from); err != nil {
			return pathError(from, err)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return pathError(to, err)
		}
		err := os.Rename(from, to)
		if err == nil {
			info, err = f.stat(to)
		}
		return err
	})
	if errors.Is(err, unix.EXDEV) {
		if err = f.moveAcross(u, from, to); err == nil {
			return f.Stat(u, to)
		}
	}
	return info, pathError(to, err)
}

// Open opens a regular file to be read.
func (f *FS) Open(u *account.User, path string) (*os.File, Info, error) {
	var file *os.File
	var info Info
	err := f.as(u, func() error {
		var err error
		// Without O_NONBLOCK, opening a pipe would wait for its other end.
		if file, err = os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
		st, err := file.Stat()
		if err == nil {
			info = f.info(path, st)
			err = readable(file, info)
		}
		if err != nil {
			file.Close()
		}
		return err
	})
	if err != nil {
		return nil, Info{}, pathError(path, err)
	}
	return file, info, nil
}

// readable refuses entries without content, and the agent's own secrets.
func readable(file *os.File, info Info) error {
	switch info.Kind {
	case bothy.FileDirectory:
		return unix.EISDIR
	case bothy.FileRegular:
	default:
		return bothy.Errorf(bothy.CodeInvalid, "%s is not a regular file", quote(info.Path)).
			WithHint("Read devices, pipes and sockets with a command.")
	}
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(file.Fd())))
	if err == nil && strings.HasPrefix(real, "/proc/"+strconv.Itoa(os.Getpid())+"/") {
		return unix.EACCES
	}
	return nil
}

// pathError turns a kernel error into one for the caller. One that already is one passes
// through.
func pathError(path string, err error) error {
	var done *bothy.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	p := quote(path)
	e := func(code bothy.Code, format string, hint string) error {
		return (&bothy.Error{Code: code, Detail: strings.ReplaceAll(format, "%s", p), Hint: hint}).Because(err)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return e(bothy.CodeFileNotFound, "there is no file or folder %s", "Check the path; list the folder above it to see what is there.")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return e(bothy.CodePermission, "the user may not do this with %s", "Ask as another user, such as root.")
	case errors.Is(err, unix.EROFS):
		return e(bothy.CodePermission, "%s is on a read-only file system", "Write elsewhere, such as below "+bothy.DefaultCwd+".")
	case errors.Is(err, unix.EEXIST):
		return e(bothy.CodeFileExists, "%s is there already", "Remove it first, or choose another name.")
	case errors.Is(err, unix.ENOTEMPTY):
		return e(bothy.CodeFileExists, "the folder %s is not empty", "Remove it first, or choose another name.")
	case errors.Is(err, unix.ENOTDIR):
		return e(bothy.CodeNotADirectory, "%s, or a part of it, is not a folder", "Check the path.")
	case errors.Is(err, unix.EISDIR):
		return e(bothy.CodeIsADirectory, "%s is a folder", "Name a file in it, or list it.")
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		var st unix.Statfs_t
		if unix.Statfs("/", &st) == nil && st.Files > 0 && st.Ffree == 0 {
			return e(bothy.CodeDiskFull, "the sandbox has all the files, folders and links that its memory allows: %s was not made", "Remove some, or create the sandbox with more memory_mb.")
		}
		return e(bothy.CodeDiskFull, "the sandbox's disk is full: %s was not written", "Remove files, or create the sandbox with a larger disk_mb.")
	case errors.Is(err, unix.ENAMETOOLONG):
		return e(bothy.CodePathInvalid, "%s is too long, or has a part that is", "A name has at most 255 bytes.")
	case errors.Is(err, unix.ELOOP):
		return e(bothy.CodePathInvalid, "%s leads through too many symbolic links", "Check the links.")
	case errors.Is(err, unix.EINVAL):
		return e(bothy.CodePathInvalid, "this cannot be done with %s", "A folder cannot be moved into itself.")
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP):
		return e(bothy.CodeInvalid, "%s is not a regular file", "Use devices, pipes and sockets with a command.")
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.ETXTBSY):
		return e(bothy.CodeConflict, "%s is in use", "Try again, or stop what uses it.")
	case errors.Is(err, unix.EFBIG):
		return e(bothy.CodeTooLarge, "%s would be larger than files can be", "")
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return e(bothy.CodeCapacity, "the sandbox has no room to open %s", "Try again when less is going on.")
	}
	return e(bothy.CodeInternal, "something failed with %s inside the sandbox", "")
}
