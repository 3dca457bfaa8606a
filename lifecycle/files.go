package lifecycle

import (
	"context"
	"io"

	"github.com/bothy-dev/bothy"
)

// Files implements bothy.FileService by forwarding to the guest.
type Files struct{ s *Service }

var _ bothy.FileService = Files{}

// Files returns the file service of the same sandboxes.
func (s *Service) Files() Files { return Files{s} }

func (f Files) Read(ctx context.Context, id, path, user string) (io.ReadCloser, *bothy.FileInfo, error) {
	var info *bothy.FileInfo
	r, err := f.s.read(ctx, id, func(g bothy.Guest) (r io.ReadCloser, err error) {
		r, info, err = g.Read(ctx, path, user)
		return r, err
	})
	return r, info, err
}

func (f Files) Write(ctx context.Context, id, path string, r io.Reader, o bothy.WriteOptions) (*bothy.FileInfo, error) {
	return get(ctx, f.s, id, bothy.ScopeSandboxesWrite, func(g bothy.Guest) (*bothy.FileInfo, error) { return g.Write(ctx, path, r, o) })
}

func (f Files) List(ctx context.Context, id, path, user string, depth int) ([]bothy.FileInfo, error) {
	return get(ctx, f.s, id, bothy.ScopeSandboxesRead, func(g bothy.Guest) ([]bothy.FileInfo, error) { return g.List(ctx, path, user, depth) })
}

func (f Files) Stat(ctx context.Context, id, path, user string) (*bothy.FileInfo, error) {
	return get(ctx, f.s, id, bothy.ScopeSandboxesRead, func(g bothy.Guest) (*bothy.FileInfo, error) { return g.Stat(ctx, path, user) })
}

func (f Files) Mkdir(ctx context.Context, id, path, user string) (*bothy.FileInfo, error) {
	return get(ctx, f.s, id, bothy.ScopeSandboxesWrite, func(g bothy.Guest) (*bothy.FileInfo, error) { return g.Mkdir(ctx, path, user) })
}

func (f Files) Move(ctx context.Context, id, from, to, user string) (*bothy.FileInfo, error) {
	return get(ctx, f.s, id, bothy.ScopeSandboxesWrite, func(g bothy.Guest) (*bothy.FileInfo, error) { return g.Move(ctx, from, to, user) })
}

func (f Files) Remove(ctx context.Context, id, path, user string) error {
	return f.s.use(ctx, id, bothy.ScopeSandboxesWrite, func(g bothy.Guest) error { return g.Remove(ctx, path, user) })
}

func (f Files) Watch(ctx context.Context, id, path, user string, recursive bool, fn func(bothy.FileEvent) error) error {
	return f.s.use(ctx, id, bothy.ScopeSandboxesRead, func(g bothy.Guest) error { return g.Watch(ctx, path, user, recursive, fn) })
}

func (f Files) ReadArchive(ctx context.Context, id, path, user string, o bothy.ArchiveOptions) (io.ReadCloser, error) {
	return f.s.read(ctx, id, func(g bothy.Guest) (io.ReadCloser, error) { return g.ReadArchive(ctx, path, user, o) })
}

func (f Files) WriteArchive(ctx context.Context, id, path, user string, r io.Reader) error {
	return f.s.use(ctx, id, bothy.ScopeSandboxesWrite, func(g bothy.Guest) error { return g.WriteArchive(ctx, path, user, r) })
}
