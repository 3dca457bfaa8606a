package files

import (
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
	// step. Otherwise the file keeps its owner, mode and other names, and the
	// user must be allowed to write it.
	Atomic bool
	// SHA256, if not nil, is the expected hash of the content.
	SHA256 []byte
	// Metadata is an E2B client's metadata for the file; it replaces any older metadata.
	Metadata map[string]string
}

// tempPrefix begins the names of files that are not complete yet.
const tempPrefix = ".bothy-tmp-"

// bufferSize is the size of each write to a file.
const bufferSize = 256 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// Write stores r in a temporary file and renames it to path, creating parent folders. If a
// rename would change the owner or links of an existing file, it copies over that file instead.
// Until then, and if anything fails, the old file is unchanged.
func (f *FS) Write(u *account.User, path string, r io.Reader, o WriteOptions) (Info, error) {
	t, err := f.create(u, path, o)
	if err != nil {
		return Info{}, pathError(path, err)
	}
	defer t.close()
	result := t.file
	if err = t.fill(r, o); err == nil {
		if t.target != nil {
			result = t.target
			if err = f.as(u, func() error { return t.setMode(o) }); err == nil {
				err = t.copyOver(o)
			}
		} else {
			err = f.as(u, func() error { return os.Rename(t.temp, t.final) })
		}
	}
	if err != nil || t.target != nil {
		_ = f.as(u, func() error { return os.Remove(t.temp) })
	}
	if err != nil {
		return Info{}, pathError(path, err)
	}
	st, err := result.Stat()
	if err != nil {
		return Info{}, pathError(path, err)
	}
	return f.info(path, st), nil
}

// pending is a file that is being written.
type pending struct {
	file        *os.File
	temp, final string
	mode        fs.FileMode
	// target is the existing file, open, if it is to be kept.
	target *os.File
}

func (t *pending) close() {
	t.file.Close()
	if t.target != nil {
		t.target.Close()
	}
}

// create opens a new file in the folder where it will be.
func (f *FS) create(u *account.User, path string, o WriteOptions) (*pending, error) {
	t := &pending{mode: 0o644}
	err := f.as(u, func() (err error) {
		if t.final, err = followLinks(path); err != nil {
			return err
		}
		st, err := os.Lstat(t.final)
		switch {
		case err == nil && st.IsDir():
			return unix.EISDIR
		case err == nil && !st.Mode().IsRegular():
			return bothy.Errorf(bothy.CodeInvalid, "%s is not a regular file", quote(path)).
				WithHint("Write to devices, pipes and sockets with a command.")
		case err == nil:
			t.mode = st.Mode()
			if !o.Atomic {
				if err := t.openTarget(o); err != nil {
					return err
				}
			}
		}
		dir := filepath.Dir(t.final)
		t.temp = filepath.Join(dir, tempPrefix+rand.Text()[:12])
		open := func() error {
			t.file, err = os.OpenFile(t.temp, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
			return err
		}
		if err = open(); errors.Is(err, fs.ErrNotExist) {
			if err = os.MkdirAll(dir, 0o755); err == nil {
				err = open()
			}
		}
		if t.target != nil && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)) {
			return nil // the folder is not the user's, though the file is
		}
		return err
	})
	if err == nil && t.target != nil {
		err = t.decide()
	}
	if err != nil && t.target != nil {
		t.target.Close()
	}
	if o.Mode != 0 {
		t.mode = fileMode(o.Mode)
	}
	return t, err
}

// openTarget opens the existing file, which fails unless the user may write it.
func (t *pending) openTarget(o WriteOptions) error {
	file, err := os.OpenFile(t.final, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ETXTBSY) {
		return nil // a running program is replaced
	}
	if err == nil {
		t.target = file
	}
	return err
}

// decide drops the target if replacing it with a new file makes no difference, since that is
// atomic.
func (t *pending) decide() error {
	if t.file == nil {
		file, err := os.CreateTemp("", tempPrefix)
		if err != nil {
			return err
		}
		t.file, t.temp = file, file.Name()
		return os.Remove(t.temp)
	}
	var have, is unix.Stat_t
	if err := errors.Join(unix.Fstat(int(t.target.Fd()), &have), unix.Fstat(int(t.file.Fd()), &is)); err != nil {
		return err
	}
	if have.Nlink == 1 && have.Uid == is.Uid && have.Gid == is.Gid {
		t.target.Close()
		t.target = nil
	}
	return nil
}

// setMode gives the target the requested mode, which only its owner may.
func (t *pending) setMode(o WriteOptions) error {
	if o.Mode == 0 {
		return nil
	}
	st, err := t.target.Stat()
	if err != nil || Bits(st.Mode()) == o.Mode {
		return err
	}
	return t.target.Chmod(fileMode(o.Mode))
}

// copyOver writes the stored content over the existing file.
func (t *pending) copyOver(o WriteOptions) error {
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	n, err := io.CopyBuffer(struct{ io.Writer }{t.target}, struct{ io.Reader }{t.file}, buf[:])
	if err == nil {
		err = t.target.Truncate(n)
	}
	if err == nil {
		err = setMetadata(t.target, o.Metadata)
	}
	if err == nil && !o.ModifiedAt.IsZero() {
		_ = setTime(t.target, o.ModifiedAt) // only the owner may
	}
	return err
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

// fill copies the content and sets the attributes.
func (t *pending) fill(r io.Reader, o WriteOptions) error {
	if s, ok := r.(Splicer); ok && o.SHA256 == nil {
		err := s.SpliceInto(t.file)
		if err == nil {
			return t.applyMetadata(o)
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	var w io.Writer = t.file
	var sum hash.Hash
	if o.SHA256 != nil {
		sum = sha256.New()
		w = io.MultiWriter(t.file, sum)
	}
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	// Hiding ReadFrom keeps the copy in this buffer.
	if _, err := io.CopyBuffer(struct{ io.Writer }{w}, r, buf[:]); err != nil {
		return err
	}
	if sum != nil && subtle.ConstantTimeCompare(sum.Sum(nil), o.SHA256) != 1 {
		return bothy.Errorf(bothy.CodeInvalid, "the content does not match its SHA-256").
			WithHint("It was damaged on the way; send it again.")
	}
	return t.applyMetadata(o)
}

// applyMetadata sets the attributes.
func (t *pending) applyMetadata(o WriteOptions) error {
	if err := t.file.Chmod(t.mode); err != nil {
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
