package folder

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// push copies entries into the sandbox. The names are sorted.
func (f *Folder) push(ctx context.Context, names []string, local, remote map[string]entry) (Report, error) {
	var r Report
	var send []string
	for _, name := range slices.Backward(names) {
		l, old := local[name], remote[name]
		// Something of another kind is removed first.
		if old.there() && (!l.there() || l.Kind != old.Kind || l.Kind == kindLink) {
			if old.Kind == kindFolder && !f.empty(ctx, name) {
				f.keep(name, l, old)
				continue
			}
			if err := f.files.Remove(ctx, f.o.Sandbox, path.Join(f.o.Inside, name), f.o.User); err != nil && bothy.ErrorCode(err) != bothy.CodeFileNotFound {
				return r, err
			}
		}
		if !l.there() {
			delete(f.base, name)
			r.In++
			continue
		}
		send = append(send, name)
	}
	if len(send) == 0 {
		return r, nil
	}
	slices.Reverse(send)
	if send = f.reachable(send, local, remote); len(send) == 0 {
		return r, nil
	}
	pr, pw := io.Pipe()
	packed := make(chan error, 1)
	p := &packer{folder: f, ctx: ctx, w: tar.NewWriter(pw), sent: map[string]pair{}}
	go func() {
		err := p.all(send)
		pw.CloseWithError(err)
		packed <- err
	}()
	err := f.files.WriteArchive(ctx, f.o.Sandbox, f.o.Inside, f.o.User, pr)
	pr.CloseWithError(io.ErrClosedPipe)
	if packErr := <-packed; packErr != nil && packErr != io.ErrClosedPipe {
		return r, packErr
	}
	if err != nil {
		return r, err
	}
	// The other side now has what was sent. If it was changed meanwhile, it differs the next
	// time.
	for name, both := range p.sent {
		f.base[name] = both
		r.In++
		if both.Local.Kind == kindFile {
			r.Bytes += both.Local.Size
		}
	}
	return r, nil
}

// empty reports whether a folder in the sandbox has no entries, also none that are not carried.
func (f *Folder) empty(ctx context.Context, name string) bool {
	left, err := f.files.List(ctx, f.o.Sandbox, path.Join(f.o.Inside, name), f.o.User, 1)
	return err == nil && len(left) == 0 || bothy.ErrorCode(err) == bothy.CodeFileNotFound
}

// keep leaves a folder in the sandbox that is none here any more.
func (f *Folder) keep(name string, l, old entry) {
	if l.there() {
		f.note("left %s as it is on both sides: in the sandbox it is a folder with files that are not here", name)
		return
	}
	f.note("kept the folder %s in the sandbox: it was removed here, and there are files in it that were not carried", name)
	f.base[name] = pair{Remote: old}
}

// reachable leaves out entries that in the sandbox lie below something else than a folder, such
// as a link, through which they would replace other files.
func (f *Folder) reachable(names []string, local, remote map[string]entry) []string {
	folders := map[string]bool{}
	for _, name := range names {
		folders[name] = local[name].Kind == kindFolder
	}
	return slices.DeleteFunc(names, func(name string) bool {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if k := remote[dir].Kind; k != "" && k != kindFolder && !folders[dir] {
				f.note("left %s out of the sandbox: what is above it is no folder there", name)
				return true
			}
		}
		return false
	})
}

// packer writes entries of this host as a tar, and records their state.
type packer struct {
	folder *Folder
	ctx    context.Context
	w      *tar.Writer
	sent   map[string]pair
}

func (p *packer) all(names []string) error {
	for _, name := range names {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if err := p.one(name); err != nil {
			return err
		}
	}
	return p.w.Close()
}

func (p *packer) one(name string) error {
	full := filepath.Join(p.folder.o.Local, name)
	info, err := os.Lstat(full)
	if err != nil {
		return nil // removed meanwhile: the next time will show
	}
	e, err := localEntry(full, info)
	if err != nil || !e.there() {
		return nil
	}
	h := &tar.Header{Name: name, Format: tar.FormatPAX, Mode: 0o755, ModTime: info.ModTime()}
	switch e.Kind {
	case kindFolder:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case kindLink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Target
	default:
		return p.file(name, full, h)
	}
	p.sent[name] = pair{e, e}
	return p.w.WriteHeader(h)
}

// file packs a file with the length it has when it is opened.
func (p *packer) file(name, full string, h *tar.Header) error {
	file, err := openFile(full)
	if err != nil {
		p.folder.note("left out %s: %v", name, reason(err))
		return nil
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	// Not every sandbox stores nanoseconds.
	h.Typeflag, h.Size, h.ModTime = tar.TypeReg, info.Size(), info.ModTime().Truncate(time.Microsecond)
	h.Mode = int64(info.Mode().Perm())
	if err := p.w.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyN(p.w, file, info.Size())
	if err == io.EOF {
		return fmt.Errorf("cannot carry %s: it shrank from %d to %d bytes meanwhile", strings.TrimSpace(name), info.Size(), n)
	}
	p.sent[name] = pair{
		Local:  fileEntry(info.Size(), info.Mode(), info.ModTime()),
		Remote: fileEntry(info.Size(), info.Mode(), h.ModTime),
	}
	return err
}

// openFile opens a file without following a link or waiting for a pipe.
func openFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|nofollow, 0)
}
