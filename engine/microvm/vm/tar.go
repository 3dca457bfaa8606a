package vm

import (
	"archive/tar"
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The tar of the changed files has the names ./ and ./x, whiteouts as devices 0:0, opaque
// folders by the overlay's own attribute, and attributes as PAX records. The gVisor engine reads
// and writes the same format.
const (
	xattrRecord = "SCHILY.xattr."
	opaqueAttr  = "trusted.overlay.opaque"
	overlayAttr = "trusted.overlay."
	aclAttr     = "system.posix_acl_"
)

// writeTar writes what is in dir.
func writeTar(out io.Writer, dir string) error {
	buffered := bufio.NewWriterSize(out, MaxFrame)
	w := tar.NewWriter(buffered)
	seen := map[uint64]string{}
	err := filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return addToTar(w, dir, file, seen)
	})
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	return buffered.Flush()
}

func addToTar(w *tar.Writer, dir, file string, seen map[uint64]string) error {
	var st unix.Stat_t
	if err := unix.Lstat(file, &st); err != nil {
		return err
	}
	name := "." + strings.TrimPrefix(file, dir)
	h := &tar.Header{
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX,
	}
	kind := st.Mode & unix.S_IFMT
	if before, ok := seen[st.Ino]; ok && kind != unix.S_IFDIR && !isWhiteout(&st) {
		h.Typeflag, h.Linkname = tar.TypeLink, before
		return w.WriteHeader(h)
	}
	switch kind {
	case unix.S_IFDIR:
		h.Typeflag = tar.TypeDir
		h.Name += "/"
	case unix.S_IFREG:
		h.Typeflag, h.Size = tar.TypeReg, st.Size
	case unix.S_IFLNK:
		to, err := os.Readlink(file)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, to
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFCHR, unix.S_IFBLK:
		h.Typeflag = tar.TypeChar
		if kind == unix.S_IFBLK {
			h.Typeflag = tar.TypeBlock
		}
		h.Devmajor, h.Devminor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	default:
		return nil // a socket is useless without its process
	}
	seen[st.Ino] = name
	var err error
	if h.PAXRecords, err = attributes(file); err != nil {
		return err
	}
	if err := w.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(w, f, st.Size)
	return err
}

func isWhiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

// attributes returns those attributes of a file that another file system can have.
func attributes(file string) (map[string]string, error) {
	size, err := unix.Llistxattr(file, nil)
	if err != nil || size == 0 {
		return nil, ignoreUnsupported(err)
	}
	list := make([]byte, size)
	if size, err = unix.Llistxattr(file, list); err != nil {
		return nil, err
	}
	records := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimRight(string(list[:size]), "\x00"), "\x00") {
		if strings.HasPrefix(name, overlayAttr) && name != opaqueAttr || strings.Contains(name, "=") {
			continue
		}
		n, err := unix.Lgetxattr(file, name, nil)
		if err != nil {
			continue
		}
		value := make([]byte, n)
		if n, err = unix.Lgetxattr(file, name, value); err != nil || n == 0 {
			continue
		}
		if strings.HasPrefix(name, aclAttr) {
			records[xattrRecord+name] = base64.RawStdEncoding.EncodeToString(value[:n])
		} else {
			records[xattrRecord+name] = string(value[:n])
		}
	}
	return records, nil
}

func ignoreUnsupported(err error) error {
	if err == unix.EOPNOTSUPP {
		return nil
	}
	return err
}

// readTar unpacks the tar at from, a disk or a file, into dir.
func readTar(from, dir string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t := tar.NewReader(bufio.NewReaderSize(f, 1<<20))
	times := map[string]time.Time{}
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name := path.Clean(h.Name)
		if err := unpack(root, name, h, t); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
		if h.Typeflag == tar.TypeDir {
			times[name] = h.ModTime
		}
	}
	for name, at := range times {
		if err := root.Chtimes(name, at, at); err != nil {
			return err
		}
	}
	return nil
}

// unpack makes one file. No name leads out of root, whatever links it contains.
func unpack(root *os.Root, name string, h *tar.Header, content io.Reader) error {
	parent, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer parent.Close()
	dir, base := int(parent.Fd()), path.Base(name)
	perm := uint32(h.Mode & 0o7777)
	switch h.Typeflag {
	case tar.TypeDir:
		if name != "." {
			if err := unix.Mkdirat(dir, base, perm); err != nil && err != unix.EEXIST {
				return err
			}
		}
	case tar.TypeReg:
		if err := unpackFile(dir, base, content); err != nil {
			return err
		}
	case tar.TypeSymlink:
		if err := unix.Symlinkat(h.Linkname, dir, base); err != nil {
			return err
		}
	case tar.TypeLink:
		return root.Link(path.Clean(h.Linkname), name)
	case tar.TypeFifo:
		err = unix.Mknodat(dir, base, unix.S_IFIFO|perm, 0)
	case tar.TypeChar:
		err = unix.Mknodat(dir, base, unix.S_IFCHR|perm, int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))))
	case tar.TypeBlock:
		err = unix.Mknodat(dir, base, unix.S_IFBLK|perm, int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))))
	default:
		return fmt.Errorf("a tar of files holds no %q", h.Typeflag)
	}
	if err != nil {
		return err
	}
	return applyMetadata(dir, base, perm, h)
}

// applyMetadata gives a new file its owner, rights, attributes and time.
func applyMetadata(dir int, base string, perm uint32, h *tar.Header) error {
	if err := unix.Fchownat(dir, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	at := fmt.Sprintf("/proc/self/fd/%d/%s", dir, base)
	if h.Typeflag != tar.TypeSymlink {
		if err := unix.Fchmodat(dir, base, perm, 0); err != nil {
			return err
		}
	}
	for k, v := range h.PAXRecords {
		name, ok := strings.CutPrefix(k, xattrRecord)
		if !ok {
			continue
		}
		value := []byte(v)
		if strings.HasPrefix(name, aclAttr) {
			var err error
			if value, err = base64.RawStdEncoding.DecodeString(v); err != nil {
				return err
			}
		}
		if err := unix.Lsetxattr(at, name, value, 0); err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	ts := unix.NsecToTimespec(h.ModTime.UnixNano())
	return unix.UtimesNanoAt(dir, base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}

// unpackFile writes a file and leaves holes for zeros.
func unpackFile(dir int, base string, content io.Reader) error {
	fd, err := unix.Openat(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	err = copySparse(f, content)
	return errors.Join(err, f.Close())
}

func copySparse(f *os.File, r io.Reader) error {
	buf, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	var at int64
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 && string(buf[:n]) != string(zeros[:n]) {
			if _, err := f.WriteAt(buf[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return f.Truncate(at)
		}
		if err != nil {
			return err
		}
	}
}
