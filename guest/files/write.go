package files

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
)

// WriteOptions are the attributes of a file that is written.
type WriteOptions struct {
	// Mode is the permission bits. Zero means those of the existing file, or 0644.
	Mode uint32
	// ModifiedAt is the time of the last change; now when zero.
	ModifiedAt time.Time
	// Atomic replaces an existing file with a new one owned by the user, in one
	// step. Otherwise the file is written in place and keeps its owner, mode and
	// other names, and the user must be allowed to write it.
	Atomic bool
	// SHA256, if not nil, is the expected hash of the content.
	SHA256 []byte
	// Metadata is an E2B client's metadata for the file; it replaces any older metadata.
	Metadata map[string]string
	// Anywhere also writes where only root may, as E2B does. The user owns what is new there.
	Anywhere bool
}

// tempPrefix begins the names of files that are not complete yet.
const tempPrefix = ".bothy-tmp-"

// bufferSize is the size of each write to a file.
const bufferSize = 256 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// Write stores r at path, creating parent folders. An existing file is written in place, as an
// editor does, so that whoever has it open or watches it sees the new content; a reader may meet a
// mixture of old and new for a moment. That begins only once all of the content is here: if it does
// not arrive, the old file is unchanged. A new file appears at once and is removed if the write
// fails. An atomic write fills a temporary file and renames it.
func (f *FS) Write(u *account.User, path string, r io.Reader, o WriteOptions) (Info, error) {
	t, err := f.create(u, path, o)
	for range 10 {
		if !errors.Is(err, fs.ErrExist) {
			break
		} // another created it just now
		t, err = f.create(u, path, o)
	}
	if o.Anywhere && u != nil && u.UID != 0 && errors.Is(err, fs.ErrPermission) {
		if t, err = f.createAsRoot(u, path, o); err == nil {
			u = nil
		}
	}
	if err != nil {
		return Info{}, pathError(path, err)
	}
	defer t.file.Close()
	if t.exists {
		err = f.overwrite(u, t, r, o)
	} else {
		if err = fill(t.file, r, o); err == nil {
			err = t.applyMetadata(o)
		}
		if err == nil && t.name != t.final {
			err = f.as(u, func() error { return os.Rename(t.name, t.final) })
		}
		if err != nil {
			_ = f.as(u, func() error { return os.Remove(t.name) })
		}
	}
	if err != nil {
		return Info{}, pathError(path, err)
	}
	st, err := t.file.Stat()
	if err != nil {
		return Info{}, pathError(path, err)
	}
	return f.info(path, st), nil
}

// pending is a file that is being written.
type pending struct {
	file *os.File
	// name is the name that the file has now, and final the one that it will have.
	name, final string
	mode        fs.FileMode
	// exists is set if the file was there before, and is written in place.
	exists bool
}

// create opens the file to write: the existing one, a new one, or a temporary one in its folder.
func (f *FS) create(u *account.User, path string, o WriteOptions) (*pending, error) {
	t := &pending{mode: fileMode(cmp.Or(o.Mode, 0o644))}
	err := f.as(u, func() (err error) {
		if t.final, err = followLinks(path); err != nil {
			return err
		}
		t.name = t.final
		st, err := os.Lstat(t.final)
		switch {
		case err == nil && st.IsDir():
			return unix.EISDIR
		case err == nil && !st.Mode().IsRegular():
			return bothy.Errorf(bothy.CodeInvalid, "%s is not a regular file", quote(path)).
				WithHint("Write to devices, pipes and sockets with a command.")
		case err == nil:
			if o.Mode == 0 {
				t.mode = st.Mode()
			}
			if !o.Atomic {
				t.file, err = os.OpenFile(t.final, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
				if t.exists = err == nil; t.exists || !errors.Is(err, unix.ETXTBSY) {
					return err
				} // a running program is replaced
			}
			fallthrough
		case o.Atomic:
			t.name = filepath.Join(filepath.Dir(t.final), tempPrefix+rand.Text()[:12])
		}
		open := func() error {
			t.file, err = os.OpenFile(t.name, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, t.mode.Perm())
			return err
		}
		if err = open(); errors.Is(err, fs.ErrNotExist) {
			if err = os.MkdirAll(filepath.Dir(t.final), 0o755); err == nil {
				err = open()
			}
		}
		return err
	})
	return t, err
}

// createAsRoot opens the file to write for a user who may not. All that is above it must be root's alone:
// otherwise somebody could lead root elsewhere, with a link or a folder in the place of another.
func (f *FS) createAsRoot(u *account.User, path string, o WriteOptions) (*pending, error) {
	var missing []string // the lowest first
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		err := unix.Lstat(dir, &st)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, dir)
		case err != nil:
			return nil, err
		case st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != 0 || st.Mode&0o022 != 0:
			return nil, unix.EACCES
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
		return nil, unix.EACCES
	}
	t, err := f.create(nil, path, o)
	if err != nil || t.exists {
		return t, err
	}
	// Root's folders stay so until all that is in them is the user's.
	for _, name := range append([]string{t.name}, missing...) {
		if err := os.Lchown(name, int(u.UID), int(u.GID)); err != nil {
			t.file.Close()
			return nil, err
		}
	}
	return t, nil
}

// overwrite writes the content over the existing file once it is complete: what is small from
// memory, in one step, and more from a file without a name.
func (f *FS) overwrite(u *account.User, t *pending, r io.Reader, o WriteOptions) error {
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	if _, large := r.(Splicer); !large {
		n, err := readFull(r, buf[:])
		if err != nil && err != io.EOF {
			return err
		}
		if err == io.EOF {
			sum := sha256.New()
			if o.SHA256 != nil {
				sum.Write(buf[:n])
			}
			if err := o.check(sum); err != nil {
				return err
			}
			return f.over(u, t, o, func() error {
				if _, err := t.file.Write(buf[:n]); err != nil {
					return err
				}
				return t.file.Truncate(int64(n))
			})
		}
		r = io.MultiReader(bytes.NewReader(bytes.Clone(buf[:n])), r)
	}
	stage, err := unnamed(filepath.Dir(t.final))
	if err != nil {
		return err
	}
	defer stage.Close()
	if err := fill(stage, r, o); err != nil {
		return err
	}
	return f.over(u, t, o, func() error { return moveContent(t.file, stage, buf[:]) })
}

// over writes the content over the existing file, and gives it its attributes.
func (f *FS) over(u *account.User, t *pending, o WriteOptions, write func() error) error {
	return f.as(u, func() error {
		if o.Mode != 0 { // which only the owner may
			if err := t.setMode(); err != nil {
				return err
			}
		}
		if err := write(); err != nil {
			return err
		}
		if !o.ModifiedAt.IsZero() {
			_ = setTime(t.file, o.ModifiedAt) // only the owner may
		}
		return setMetadata(t.file, o.Metadata)
	})
}

// moveContent makes the content of a file that of another, from the end, so that both together never
// need much more room than one.
func moveContent(to, from *os.File, buf []byte) error {
	st, err := from.Stat()
	if err != nil {
		return err
	}
	if err := to.Truncate(st.Size()); err != nil {
		return err
	}
	for end := st.Size(); end > 0; {
		part := buf[:min(end, int64(len(buf)))]
		end -= int64(len(part))
		if _, err := from.ReadAt(part, end); err != nil {
			return err
		}
		if _, err := to.WriteAt(part, end); err != nil {
			return err
		}
		if err := from.Truncate(end); err != nil {
			return err
		}
	}
	return nil
}

// readFull reads until buf is full, or returns io.EOF if the content ends before.
func readFull(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var k int
		k, err = r.Read(buf[n:])
		n += k
	}
	return n, err
}

// unnamed returns an empty file that has no name any more. It has one for a moment in the
// temporary folder, or in the given one if that is missing.
func unnamed(otherwise string) (*os.File, error) {
	file, err := os.CreateTemp("", tempPrefix)
	if err != nil {
		file, err = os.CreateTemp(otherwise, tempPrefix)
	}
	if err == nil {
		err = os.Remove(file.Name())
	}
	return file, err
}

// setMode gives the file its mode, unless it has it.
func (t *pending) setMode() error {
	st, err := t.file.Stat()
	if err != nil || Bits(st.Mode()) == Bits(t.mode) {
		return err
	}
	return t.file.Chmod(t.mode)
}

// followLinks returns the target of a path that names a symbolic link, even a
// dangling one.
func followLinks(path string) (string, error) {
	for range 40 {
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return "", unix.ELOOP
}

// A Splicer is content that can write itself into a file, which is much cheaper for large files.
// It is also an io.Reader, in case it cannot: after SpliceInto has returned
// errors.ErrUnsupported, Read continues where it stopped.
type Splicer interface {
	SpliceInto(f *os.File) error
}

// fill copies the content into a file.
func fill(file *os.File, r io.Reader, o WriteOptions) error {
	if s, ok := r.(Splicer); ok && o.SHA256 == nil {
		if err := s.SpliceInto(file); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	var w io.Writer = file
	sum := sha256.New()
	if o.SHA256 != nil {
		w = io.MultiWriter(file, sum)
	}
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	// Hiding ReadFrom keeps the copy in this buffer.
	if _, err := io.CopyBuffer(struct{ io.Writer }{w}, r, buf[:]); err != nil {
		return err
	}
	return o.check(sum)
}

// check compares the hash of the content with the expected one.
func (o WriteOptions) check(sum hash.Hash) error {
	if o.SHA256 == nil || subtle.ConstantTimeCompare(sum.Sum(nil), o.SHA256) == 1 {
		return nil
	}
	return bothy.Errorf(bothy.CodeInvalid, "the content does not match its SHA-256").
		WithHint("It was damaged on the way; send it again.")
}

// applyMetadata sets the attributes.
func (t *pending) applyMetadata(o WriteOptions) error {
	if err := t.setMode(); err != nil {
		return err
	}
	if len(o.Metadata) > 0 {
		if err := setMetadata(t.file, o.Metadata); err != nil {
			return err
		}
	}
	if !o.ModifiedAt.IsZero() {
		return setTime(t.file, o.ModifiedAt)
	}
	return nil
}

func setTime(file *os.File, at time.Time) error {
	tv := unix.NsecToTimeval(at.UnixNano())
	return unix.Futimes(int(file.Fd()), []unix.Timeval{tv, tv})
}

// fileMode converts permission bits from the usual form into Go's.
func fileMode(bits uint32) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			m |= flag
		}
	}
	return m
}

// Bits converts Go's mode into permission bits of the usual form.
func Bits(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if m&flag != 0 {
			bits |= bit
		}
	}
	return bits
}
