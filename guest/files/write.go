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
	// Mode is the permission bits. Zero means those of the file that is there,
	// or 0644.
	Mode uint32
	// ModifiedAt is the time of the last change; now when zero.
	ModifiedAt time.Time
	// SHA256, if not nil, is what the content must hash to.
	SHA256 []byte
}

// tempPrefix begins the names of files that are not complete yet.
const tempPrefix = ".bothy-tmp-"

// bufferSize is the length of the pieces in which files are written.
const bufferSize = 256 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// Write stores r beside path and renames it into place, making the folders
// above. Until then, and if anything fails, what was there stays as it was.
func (f *FS) Write(u *account.User, path string, r io.Reader, o WriteOptions) (Info, error) {
	t, err := f.create(u, path, o)
	if err != nil {
		return Info{}, pathError(path, err)
	}
	defer t.file.Close()
	if err = t.fill(r, o); err == nil {
		err = f.as(u, func() error { return os.Rename(t.temp, t.final) })
	}
	if err != nil {
		_ = f.as(u, func() error { return os.Remove(t.temp) })
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
	file        *os.File
	temp, final string
	mode        fs.FileMode
}

// create opens a new file beside the place where it will be.
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
		return err
	})
	if o.Mode != 0 {
		t.mode = fileMode(o.Mode)
	}
	return t, err
}

// followLinks returns where a path leads when it names a symbolic link, also
// one to nothing.
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

// A Spring is content that can write itself into a file, which saves much of the
// work with large ones. It is also an io.Reader, for where it cannot: what
// PourInto has written when it returns errors.ErrUnsupported, Read does not give.
type Spring interface {
	PourInto(f *os.File) error
}

// fill copies the content and sets the attributes.
func (t *pending) fill(r io.Reader, o WriteOptions) error {
	if s, ok := r.(Spring); ok && o.SHA256 == nil {
		err := s.PourInto(t.file)
		if err == nil {
			return t.dress(o)
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
	return t.dress(o)
}

// dress sets the attributes.
func (t *pending) dress(o WriteOptions) error {
	if err := t.file.Chmod(t.mode); err != nil {
		return err
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

// fileMode turns permission bits as users write them into Go's.
func fileMode(bits uint32) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			m |= flag
		}
	}
	return m
}

// Bits turns Go's mode into permission bits as users write them.
func Bits(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if m&flag != 0 {
			bits |= bit
		}
	}
	return bits
}
