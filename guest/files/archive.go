package files

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
)

// ReadArchive writes a tar of a folder's entries, or of one file, to w. It keeps files, folders,
// symbolic links, and hard links among the entries, with modes and times; it omits devices,
// pipes and sockets.
func (f *FS) ReadArchive(u *account.User, path string, w io.Writer, o bothy.ArchiveOptions) error {
	var st fs.FileInfo
	out, err := parseExcludes(o.Exclude)
	if err != nil {
		return err
	}
	err = f.as(u, func() (err error) {
		st, err = os.Stat(path)
		return err
	})
	if err != nil {
		return pathError(path, err)
	}
	end := func() error { return nil }
	if o.Gzip {
		zip, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
		w, end = zip, zip.Close
	}
	p := &packer{f: f, u: u, t: tar.NewWriter(w), out: out}
	if st.IsDir() {
		err = p.folder(path, "")
	} else {
		err = p.entry(path, filepath.Base(path), st)
	}
	if err == nil {
		err = errors.Join(p.t.Close(), end())
	}
	return pathError(path, err)
}

// packer writes the entries of one archive.
type packer struct {
	f   *FS
	u   *account.User
	t   *tar.Writer
	out excludes
	// linked has the name under which a file with several names was packed.
	linked map[inode]string
}

type inode struct{ dev, ino uint64 }

func (p *packer) folder(dir, prefix string) error {
	f, u := p.f, p.u
	var names []string
	err := f.as(u, func() (err error) {
		names, err = readNames(dir, MaxEntries)
		return err
	})
	if err != nil {
		return pathError(dir, err)
	}
	for _, name := range names {
		path := dir + "/" + name
		var st fs.FileInfo
		err := f.as(u, func() (err error) {
			st, err = os.Lstat(path)
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err == nil && p.out.match(prefix+name, st.IsDir()) {
			continue
		}
		if err == nil {
			err = p.entry(path, prefix+name, st)
		}
		if err == nil && st.IsDir() {
			err = p.folder(path, prefix+name+"/")
		}
		if err != nil {
			return pathError(path, err)
		}
	}
	return nil
}

// entry adds one entry.
func (p *packer) entry(path, name string, st fs.FileInfo) error {
	h := &tar.Header{Name: name, Mode: int64(Bits(st.Mode())), ModTime: st.ModTime(), Format: tar.FormatPAX}
	if sys, ok := st.Sys().(*sysStat); ok {
		h.Uid, h.Gid = int(sys.Uid), int(sys.Gid)
	}
	switch kind(st.Mode()) {
	case bothy.FileDirectory:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		return p.t.WriteHeader(h)
	case bothy.FileSymlink:
		h.Typeflag = tar.TypeSymlink
		err := p.f.as(p.u, func() (err error) {
			h.Linkname, err = os.Readlink(path)
			return err
		})
		if err != nil {
			return err
		}
		return p.t.WriteHeader(h)
	case bothy.FileRegular:
		if p.isLink(h, st) {
			return p.t.WriteHeader(h)
		}
		return p.file(path, h)
	}
	return nil
}

// isLink turns the header of a file that was already packed into one of a link to it.
func (p *packer) isLink(h *tar.Header, st fs.FileInfo) bool {
	sys, ok := st.Sys().(*sysStat)
	if !ok || sys.Nlink < 2 {
		return false
	}
	id := inode{uint64(sys.Dev), sys.Ino}
	first, ok := p.linked[id]
	if ok {
		h.Typeflag, h.Linkname = tar.TypeLink, first
		return true
	}
	if p.linked == nil {
		p.linked = make(map[inode]string)
	}
	p.linked[id] = h.Name
	return false
}

// file adds a file with the length it has when it is opened: if it grows later,
// the rest is left out, and if it shrinks, it is padded with zeros.
func (p *packer) file(path string, h *tar.Header) error {
	t := p.t
	file, info, err := p.f.Open(p.u, path)
	if err != nil {
		return err
	}
	defer file.Close()
	h.Typeflag, h.Size = tar.TypeReg, info.Size
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	n, err := io.CopyBuffer(struct{ io.Writer }{t}, io.LimitReader(file, h.Size), buf[:])
	if err != nil || n == h.Size {
		return err
	}
	clear(buf[:])
	_, err = io.CopyBuffer(struct{ io.Writer }{t}, io.LimitReader(zeros{}, h.Size-n), buf[:])
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// WriteArchive unpacks a tar below a folder, which is made if need be. Entries
// that lead out of the folder, by their names or through symbolic links, are
// refused. The tar may be compressed with gzip.
func (f *FS) WriteArchive(u *account.User, path string, r io.Reader) error {
	var root *os.Root
	err := f.as(u, func() error {
		err := os.MkdirAll(path, 0o755)
		if err == nil {
			root, err = os.OpenRoot(path)
		}
		return err
	})
	if err != nil {
		return pathError(path, err)
	}
	defer root.Close()
	x := &unpacker{f: f, u: u, root: root}
	plain, err := uncompressed(r)
	if err == nil {
		err = x.all(tar.NewReader(plain))
	}
	if err == nil {
		err = readRest(plain)
	}
	return pathError(path, err)
}

// uncompressed detects by its first bytes whether a tar is compressed, and decompresses it.
func uncompressed(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	switch first, _ := b.Peek(8); {
	case bytes.HasPrefix(first, []byte{0x1f, 0x8b}):
		zip, err := gzip.NewReader(b)
		if err != nil {
			return nil, archiveError(err)
		}
		return zip, nil
	case bytes.HasPrefix(first, []byte("\x28\xb5\x2f\xfd")), bytes.HasPrefix(first, []byte("BZh")), bytes.HasPrefix(first, []byte("\xfd7zXZ")):
		return nil, bothy.Errorf(bothy.CodeUnsupported, "the archive is compressed with something other than gzip").
			WithHint("Send the tar as it is, or compressed with gzip.")
	}
	return b, nil
}

// readRest reads to the end of a compressed archive, where its checksum is.
func readRest(r io.Reader) error {
	zip, ok := r.(*gzip.Reader)
	if !ok {
		return nil
	}
	if _, err := io.Copy(io.Discard, zip); err != nil {
		return archiveError(err)
	}
	return nil
}

// unpacker writes the entries of one archive.
type unpacker struct {
	f    *FS
	u    *account.User
	root *os.Root
	// folders get their modes and times last: unpacking into them changes the
	// times, and needs write permission.
	folders []*tar.Header
}

func (x *unpacker) all(t *tar.Reader) error {
	for {
		h, err := t.Next()
		if err == io.EOF {
			return x.finish()
		}
		if err != nil {
			return archiveError(err)
		}
		if err := x.entry(h, t); err != nil {
			return entryError(h.Name, err)
		}
	}
}

func (x *unpacker) entry(h *tar.Header, r io.Reader) error {
	name := filepath.Clean(h.Name)
	if !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
		return errOutside
	}
	h.Name = name
	switch h.Typeflag {
	case tar.TypeDir:
		if name != "." {
			x.folders = append(x.folders, h)
		}
		return x.f.as(x.u, func() error { return x.root.MkdirAll(name, 0o755) })
	case tar.TypeReg:
		return x.file(h, r)
	case tar.TypeSymlink:
		return x.replace(name, func() error { return x.root.Symlink(h.Linkname, name) })
	case tar.TypeLink:
		target := filepath.Clean(h.Linkname)
		if !filepath.IsLocal(target) {
			return errOutside
		}
		return x.link(target, name)
	case tar.TypeXGlobalHeader:
		return nil
	}
	return bothy.Errorf(bothy.CodeUnsupported, "the archive's entry %s is neither a file, a folder nor a link", quote(name))
}

// link gives an existing or previously unpacked entry another name.
func (x *unpacker) link(target, name string) error {
	err := x.f.as(x.u, func() error {
		_, err := x.root.Lstat(target)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return bothy.Errorf(bothy.CodeInvalid, "the archive's entry %s is a hard link to %s, which is not in the folder", quote(name), quote(target)).
			WithHint("Pack the file before the links to it.").Because(err)
	}
	if err != nil || target == name {
		return err
	}
	return x.replace(name, func() error { return x.root.Link(target, name) })
}

// replace creates an entry, replacing what is there.
func (x *unpacker) replace(name string, makeIt func() error) error {
	return x.f.as(x.u, func() error {
		if err := x.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		err := makeIt()
		if errors.Is(err, fs.ErrExist) {
			if err = x.root.Remove(name); err == nil {
				err = makeIt()
			}
		}
		return err
	})
}

func (x *unpacker) file(h *tar.Header, r io.Reader) error {
	var file *os.File
	err := x.replace(h.Name, func() (err error) {
		file, err = x.root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	defer file.Close()
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	if _, err := io.CopyBuffer(struct{ io.Writer }{file}, r, buf[:]); err != nil {
		return archiveError(err)
	}
	if err := file.Chmod(fileMode(uint32(h.Mode))); err != nil {
		return err
	}
	return setTime(file, entryTime(h))
}

func (x *unpacker) finish() error {
	return x.f.as(x.u, func() error {
		for i := len(x.folders) - 1; i >= 0; i-- {
			h := x.folders[i]
			if err := x.root.Chmod(h.Name, fileMode(uint32(h.Mode))); err != nil {
				return entryError(h.Name, err)
			}
			if err := x.root.Chtimes(h.Name, entryTime(h), entryTime(h)); err != nil {
				return entryError(h.Name, err)
			}
		}
		return nil
	})
}

// entryTime returns an entry's time, or now if it has none.
func entryTime(h *tar.Header) time.Time {
	if h.ModTime.Unix() <= 0 {
		return time.Now()
	}
	return h.ModTime
}

var errOutside = errors.New("leads out of the folder")

func entryError(name string, err error) error {
	if errors.Is(err, errOutside) || strings.Contains(err.Error(), "path escapes from parent") {
		return bothy.Errorf(bothy.CodePathInvalid, "the archive's entry %s leads out of the folder", quote(name)).
			WithHint("Pack the archive with relative names and without links that leave it.").Because(err)
	}
	return pathError(name, err)
}

// archiveError distinguishes damaged archives from failing disks.
func archiveError(err error) error {
	var errno unix.Errno
	var done *bothy.Error
	if errors.As(err, &errno) || errors.As(err, &done) {
		return err
	}
	return bothy.Errorf(bothy.CodeInvalid, "the archive is damaged or not a tar").
		WithHint("Send a tar, as it is or compressed with gzip.").Because(err)
}

// moveAcross moves an entry to another file system: it is copied next to its
// destination, renamed, and only then removed from the old place.
func (f *FS) moveAcross(u *account.User, from, to string) error {
	temp := filepath.Join(filepath.Dir(to), tempPrefix+rand.Text()[:12])
	defer func() { _ = f.Remove(u, temp, false) }()
	if err := f.copyTo(u, from, temp); err != nil {
		return err
	}
	err := f.as(u, func() error {
		err := os.Rename(filepath.Join(temp, filepath.Base(from)), to)
		if err == nil {
			err = os.RemoveAll(from)
		}
		return err
	})
	return pathError(to, err)
}

// copyTo packs one entry, with its own name, and unpacks it below a folder.
func (f *FS) copyTo(u *account.User, from, folder string) error {
	r, w := io.Pipe()
	go func() {
		p := &packer{f: f, u: u, t: tar.NewWriter(w)}
		var st fs.FileInfo
		err := f.as(u, func() (err error) {
			st, err = os.Lstat(from)
			return err
		})
		name := filepath.Base(from)
		if err == nil {
			err = p.entry(from, name, st)
		}
		if err == nil && st.IsDir() {
			err = p.folder(from, name+"/")
		}
		if err == nil {
			err = p.t.Close()
		}
		w.CloseWithError(pathError(from, err))
	}()
	err := f.WriteArchive(u, folder, r)
	r.CloseWithError(err)
	return err
}
