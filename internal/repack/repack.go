// Package repack turns an archive that nobody vouches for into a tar for a sandbox. It writes no
// file, and Confined does it in a process without rights.
package repack

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"strings"
	"unicode/utf8"
)

const (
	// MaxArchive limits an archive.
	MaxArchive = 32 << 20
	// maxUnpacked limits its content, also maxRatio times the archive's size, and maxFiles its
	// files and folders.
	maxUnpacked = 256 << 20
	maxRatio    = 200
	maxFiles    = 10_000
	// maxDirectory limits the directory of a zip.
	maxDirectory = 4 << 20
	// maxName and maxFolders limit the name of a file, and the folders that it is in.
	maxName    = 1024
	maxFolders = 32
)

// An entry is a file or a folder of an archive. Archives may contain others, which are left out.
type entry struct {
	name    string // relative, clean, and below the folder that the archive is unpacked to
	folder  bool
	program bool
	size    int64
}

// An archive is a zip, or a tar that is plain or compressed with gzip or bzip2.
type archive struct {
	ctx  context.Context
	file *os.File
	size int64
}

// Here writes the files of an archive as a tar, below a folder. The folder that contains all files
// of an archive is left out.
func Here(ctx context.Context, file *os.File, folder string, w io.Writer) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return archive{ctx, file, info.Size()}.repack(w, folder)
}

func (a archive) repack(w io.Writer, folder string) error {
	var names []string
	err := a.each(func(e entry, content io.Reader) error { // everything is read once before any of it is used
		names = append(names, e.name)
		_, err := io.Copy(io.Discard, content)
		return err
	})
	if err != nil {
		return err
	}
	out := packer{tar: tar.NewWriter(w), kinds: map[string]byte{}}
	top := wrapper(names)
	err = a.each(func(e entry, content io.Reader) error {
		if top != "" {
			if e.name == top {
				return nil
			}
			e.name = strings.TrimPrefix(e.name, top+"/")
		}
		e.name = path.Join(folder, e.name)
		return out.add(e, content)
	})
	if err != nil {
		return err
	}
	return out.tar.Close()
}

// wrapper is the folder that all names are in, or "".
func wrapper(names []string) string {
	top, nested := "", false
	for i, name := range names {
		first, _, below := strings.Cut(name, "/")
		if i > 0 && first != top {
			return ""
		}
		top, nested = first, nested || below
	}
	if !nested {
		return ""
	}
	return top
}

// A packer writes a tar in which each name has one kind.
type packer struct {
	tar   *tar.Writer
	kinds map[string]byte
}

func (p *packer) add(e entry, content io.Reader) error {
	if err := p.folder(path.Dir(e.name)); err != nil || e.folder {
		if err == nil {
			err = p.folder(e.name)
		}
		return err
	}
	if p.kinds[e.name] == tar.TypeDir {
		return fmt.Errorf("%.100q is a file and a folder", e.name)
	}
	p.kinds[e.name] = tar.TypeReg
	mode := int64(0o644)
	if e.program {
		mode = 0o755
	}
	if err := p.tar.WriteHeader(&tar.Header{Name: e.name, Typeflag: tar.TypeReg, Mode: mode, Size: e.size}); err != nil {
		return err
	}
	_, err := io.Copy(p.tar, content)
	return err
}

// folder adds a folder and those that it is in.
func (p *packer) folder(name string) error {
	switch kind := p.kinds[name]; {
	case name == "." || kind == tar.TypeDir:
		return nil
	case kind != 0:
		return fmt.Errorf("%.100q is a file and a folder", name)
	}
	if err := p.folder(path.Dir(name)); err != nil {
		return err
	}
	p.kinds[name] = tar.TypeDir
	return p.tar.WriteHeader(&tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755})
}

// each calls fn for the files and folders of the archive. It ends with an error when the archive
// exceeds a limit.
func (a archive) each(fn func(entry, io.Reader) error) error {
	if _, err := a.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	b := &bounds{left: min(maxUnpacked, maxRatio*a.size+1<<20), ctx: a.ctx, fn: fn}
	from := bufio.NewReader(a.file)
	magic, _ := from.Peek(4)
	switch {
	case bytes.Equal(magic, []byte("PK\x03\x04")):
		return a.eachOfZip(b)
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(from)
		if err != nil {
			return err
		}
		return eachOfTar(z, b)
	case bytes.HasPrefix(magic, []byte("BZh")):
		return eachOfTar(bzip2.NewReader(from), b)
	}
	return eachOfTar(from, b)
}

func eachOfTar(r io.Reader, b *bounds) error {
	// Headers and files that are left out count as well.
	t := tar.NewReader(&AtMost{R: r, Left: b.left + maxFiles*4<<10, What: "what is in the archive"})
	for {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		e := entry{name: h.Name, folder: h.Typeflag == tar.TypeDir, program: h.Mode&0o111 != 0, size: h.Size}
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeDir, tar.TypeGNUSparse:
			err = b.pass(e, t)
		default:
			err = b.count()
		}
		if err != nil {
			return err
		}
	}
}

func (a archive) eachOfZip(b *bounds) error {
	d := &directory{from: a.file, left: maxDirectory}
	z, err := zip.NewReader(d, a.size)
	if err != nil {
		return err
	}
	d.left = math.MaxInt64
	for _, f := range z.File {
		if m := f.Mode(); !m.IsRegular() && !m.IsDir() {
			if err := b.count(); err != nil {
				return err
			}
			continue
		}
		if f.UncompressedSize64 > maxUnpacked {
			return errors.New("a file in the archive is too large")
		}
		e := entry{name: f.Name, folder: f.Mode().IsDir(), program: f.Mode()&0o111 != 0, size: int64(f.UncompressedSize64)}
		if e.folder {
			if err := b.pass(e, nil); err != nil {
				return err
			}
			continue
		}
		content, err := f.Open()
		if err != nil {
			return err
		}
		err = b.pass(e, content)
		content.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// A directory is a zip, of which only left bytes may be read.
type directory struct {
	from io.ReaderAt
	left int64
}

// ReadAt implements io.ReaderAt.
func (d *directory) ReadAt(p []byte, off int64) (int, error) {
	n, err := d.from.ReadAt(p, off)
	if d.left -= int64(n); d.left < 0 {
		return 0, errors.New("the directory of the archive is too large")
	}
	return n, err
}

// bounds are what may still come in an archive.
type bounds struct {
	ctx   context.Context
	left  int64
	files int
	fn    func(entry, io.Reader) error
}

func (b *bounds) count() error {
	if b.files++; b.files > maxFiles {
		return fmt.Errorf("the archive has more than %d files", maxFiles)
	}
	return nil
}

// pass calls fn for an entry, unless it exceeds a limit. Content that is longer or shorter than
// announced is an error.
func (b *bounds) pass(e entry, content io.Reader) error {
	if err := b.count(); err != nil {
		return err
	}
	e.name = strings.TrimPrefix(path.Clean("/"+e.name), "/")
	switch {
	case e.name == "":
		return nil
	case !ProperName(e.name):
		return fmt.Errorf("the archive has a file with the name %.100q", e.name)
	case e.folder:
		e.size, content = 0, strings.NewReader("")
	case e.size < 0 || e.size > b.left:
		return errors.New("what is in the archive is too large")
	}
	b.left -= e.size
	return b.fn(e, &exact{ctx: b.ctx, from: content, left: e.size})
}

// ProperName reports whether a clean relative path is one that a file may have.
func ProperName(name string) bool {
	if len(name) > maxName || strings.Count(name, "/") > maxFolders || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." || len(part) > 255 {
			return false
		}
	}
	return true
}

// exact reads content that must have left more bytes.
type exact struct {
	ctx  context.Context
	from io.Reader
	left int64
}

// Read implements io.Reader.
func (x *exact) Read(p []byte) (int, error) {
	if err := x.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := x.from.Read(p[:min(int64(len(p)), x.left+1)])
	x.left -= int64(n)
	if x.left < 0 || err == io.EOF && x.left > 0 {
		return 0, errors.New("a file in the archive has another size than the archive says")
	}
	return n, err
}

// AtMost reads from R, which may have no more than Left bytes.
type AtMost struct {
	R    io.Reader
	Left int64
	What string // for the error
}

// Read implements io.Reader.
func (l *AtMost) Read(p []byte) (int, error) {
	n, err := l.R.Read(p[:min(int64(len(p)), l.Left+1)])
	if l.Left -= int64(n); l.Left < 0 {
		return 0, fmt.Errorf("%s is too large", l.What)
	}
	return n, err
}
