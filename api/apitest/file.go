package apitest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
)

// Files is the world's bothy.FileService.
type Files struct{ *World }

// Files returns the world's files.
func (w *World) Files() Files { return Files{w} }

type file struct {
	info bothy.FileInfo
	data []byte
}

func absolute(p string) string {
	if !path.IsAbs(p) {
		p = path.Join(bothy.DefaultCwd, p)
	}
	return path.Clean(p)
}

// file finds an entry. The caller holds w.mu.
func (w *World) file(ctx context.Context, id, p string) (*sandbox, *file, error) {
	b, err := w.get(ctx, id, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, nil, err
	}
	f := b.files[absolute(p)]
	if f == nil {
		return b, nil, bothy.Errorf(bothy.CodeFileNotFound, "there is no file %s in %s", absolute(p), id).WithHint("List the folder above it.")
	}
	return b, f, nil
}

// Read implements bothy.FileService. A file whose name begins with "broken"
// stops after its first half.
func (w Files) Read(ctx context.Context, id, p, _ string) (io.ReadCloser, *bothy.FileInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, f, err := w.file(ctx, id, p)
	if err != nil {
		return nil, nil, err
	}
	if f.info.Type == bothy.FileDirectory {
		return nil, nil, bothy.Errorf(bothy.CodeIsADirectory, "%s is a folder", p).WithHint("List it.")
	}
	info, data := f.info, f.data
	if strings.HasPrefix(info.Name, "broken") {
		data = data[:len(data)/2]
	}
	if strings.HasPrefix(info.Name, "proc") {
		info.Size = 0
	}
	return io.NopCloser(bytes.NewReader(data)), &info, nil
}

// Write implements bothy.FileService.
func (w Files) Write(ctx context.Context, id, p string, r io.Reader, o bothy.WriteOptions) (*bothy.FileInfo, error) {
	if err := w.failing(); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.get(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	if o.Mode == 0 {
		o.Mode = 0o644
	}
	if o.User == "" {
		o.User = bothy.DefaultUser
	}
	at := o.ModifiedAt
	if at.IsZero() {
		at = Epoch
	}
	p = absolute(p)
	b.mkdir(path.Dir(p))
	f := &file{data: data, info: bothy.FileInfo{
		Name: path.Base(p), Path: p, Type: bothy.FileRegular, Size: int64(len(data)),
		Mode: fmt.Sprintf("%04o", o.Mode), Owner: o.User, ModifiedAt: at,
	}}
	b.files[p] = f
	info := f.info
	return &info, nil
}

func (b *sandbox) mkdir(p string) *file {
	if b.files[p] == nil {
		b.files[p] = &file{info: bothy.FileInfo{Name: path.Base(p), Path: p, Type: bothy.FileDirectory, Mode: "0755", ModifiedAt: Epoch}}
	}
	return b.files[p]
}

// List implements bothy.FileService.
func (w Files) List(ctx context.Context, id, p, _ string, depth int) ([]bothy.FileInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, _, err := w.file(ctx, id, p)
	if err != nil {
		return nil, err
	}
	var out []bothy.FileInfo
	for name, f := range b.files {
		rest, below := strings.CutPrefix(name, absolute(p)+"/")
		if below && strings.Count(rest, "/") < depth {
			out = append(out, f.info)
		}
	}
	slices.SortFunc(out, func(x, y bothy.FileInfo) int { return strings.Compare(x.Path, y.Path) })
	return out, nil
}

// Stat implements bothy.FileService.
func (w Files) Stat(ctx context.Context, id, p, _ string) (*bothy.FileInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, f, err := w.file(ctx, id, p)
	if err != nil {
		return nil, err
	}
	info := f.info
	return &info, nil
}

// Mkdir implements bothy.FileService.
func (w Files) Mkdir(ctx context.Context, id, p, _ string) (*bothy.FileInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.get(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	info := b.mkdir(absolute(p)).info
	return &info, nil
}

// Move implements bothy.FileService.
func (w Files) Move(ctx context.Context, id, from, to, _ string) (*bothy.FileInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, f, err := w.file(ctx, id, from)
	if err != nil {
		return nil, err
	}
	delete(b.files, absolute(from))
	f.info.Path, f.info.Name = absolute(to), path.Base(to)
	b.files[absolute(to)] = f
	info := f.info
	return &info, nil
}

// Remove implements bothy.FileService.
func (w Files) Remove(ctx context.Context, id, p, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, _, err := w.file(ctx, id, p)
	if err != nil {
		return err
	}
	for name := range b.files {
		if name == absolute(p) || strings.HasPrefix(name, absolute(p)+"/") {
			delete(b.files, name)
		}
	}
	return nil
}

// Watch implements bothy.FileService: it reports one event immediately, and no more.
func (w Files) Watch(ctx context.Context, id, p, _ string, recursive bool, fn func(bothy.FileEvent) error) error {
	w.mu.Lock()
	_, _, err := w.file(ctx, id, p)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	if err := fn(bothy.FileEvent{Type: "create", Path: absolute(p) + "/new", Name: fmt.Sprint("new ", recursive)}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// ReadArchive implements bothy.FileService. The bytes are not a tar, since nothing on the way
// may depend on that.
func (w Files) ReadArchive(ctx context.Context, id, p, _ string, o bothy.ArchiveOptions) (io.ReadCloser, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, _, err := w.file(ctx, id, p); err != nil {
		return nil, err
	}
	q := url.Values{}
	o.SetQuery(q)
	return io.NopCloser(strings.NewReader(strings.TrimSpace("tar of " + absolute(p) + " " + q.Encode()))), nil
}

// WriteArchive implements bothy.FileService: the bytes go to a file "archive".
func (w Files) WriteArchive(ctx context.Context, id, p, user string, r io.Reader) error {
	_, err := w.Write(ctx, id, path.Join(p, "archive"), r, bothy.WriteOptions{User: user})
	return err
}
