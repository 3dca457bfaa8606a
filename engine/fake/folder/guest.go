package folder

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/fake"
	"github.com/bothy-dev/bothy/guest/client"
)

// Guest is a guest on a host whose machines have folders. It makes paths of the sandbox those
// of its folder, and the other way round, and keeps the agent from other processes of this host.
type Guest struct {
	client.Guest
	Host *fake.Host

	root atomic.Value // a string, set by adoption
}

var _ bothy.Guest = (*Guest)(nil)

// Adopt implements bothy.Guest.
func (g *Guest) Adopt(ctx context.Context, id bothy.Identity) error {
	root := g.Host.Machine(id.SandboxID).Inside().(*Inside).root
	g.root.Store(root)
	env := map[string]string{"HOME": root}
	for k, v := range id.Env {
		env[k] = v
	}
	id.Env, id.DefaultUser, id.DefaultCwd = env, "", g.in(id.DefaultCwd)
	return g.Guest.Adopt(ctx, id)
}

// folder is the folder of the machine.
func (g *Guest) folder() string {
	root, _ := g.root.Load().(string)
	return root
}

// in is where a path of the sandbox lies on this host.
func (g *Guest) in(path string) string {
	if !filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(g.folder(), path)
}

func (g *Guest) out(path string) string {
	if rest, ok := strings.CutPrefix(path, g.folder()); ok {
		return filepath.Join("/", rest)
	}
	return path
}

func (g *Guest) info(i *bothy.FileInfo, err error) (*bothy.FileInfo, error) {
	if i != nil {
		i.Path = g.out(i.Path)
	}
	return i, g.err(err)
}

// err removes the folder from what an error says.
func (g *Guest) err(err error) error {
	var e *bothy.Error
	if !errors.As(err, &e) || g.folder() == "" {
		return err
	}
	c := *e
	c.Detail, c.Hint = strings.ReplaceAll(e.Detail, g.folder(), ""), strings.ReplaceAll(e.Hint, g.folder(), "")
	return &c
}

func (g *Guest) exec(req bothy.ExecRequest) bothy.ExecRequest {
	req.Cwd = g.in(req.Cwd)
	return req
}

// Exec implements bothy.Guest.
func (g *Guest) Exec(ctx context.Context, req bothy.ExecRequest) (*bothy.ExecResult, error) {
	r, err := g.Guest.Exec(ctx, g.exec(req))
	return r, g.err(err)
}

// ExecStream implements bothy.Guest.
func (g *Guest) ExecStream(ctx context.Context, req bothy.ExecRequest, fn func(bothy.ExecEvent) error) error {
	return g.Guest.ExecStream(ctx, g.exec(req), fn)
}

// Terminal implements bothy.Guest.
func (g *Guest) Terminal(ctx context.Context, req bothy.TerminalRequest) (bothy.Terminal, error) {
	req.Cwd = g.in(req.Cwd)
	return g.Guest.Terminal(ctx, req)
}

// AllProcesses implements bothy.Guest: those of the sandbox alone.
func (g *Guest) AllProcesses(ctx context.Context) ([]bothy.ProcessInfo, error) {
	return g.Processes(ctx)
}

// Signal implements bothy.Guest.
func (g *Guest) Signal(ctx context.Context, pid, signal int) error {
	own, err := g.Processes(ctx)
	if err != nil {
		return err
	}
	for _, p := range own {
		if p.PID == pid {
			return g.Guest.Signal(ctx, pid, signal)
		}
	}
	return bothy.Errorf(bothy.CodeProcessNotFound, "there is no process %d", pid).WithHint("List the processes to see those that there are.")
}

// KillLargest implements bothy.Guest: nothing here has a limit.
func (g *Guest) KillLargest(context.Context, int64) (bothy.Killed, error) { return bothy.Killed{}, nil }

// Read implements bothy.Guest.
func (g *Guest) Read(ctx context.Context, path, user string) (io.ReadCloser, *bothy.FileInfo, error) {
	r, i, err := g.Guest.Read(ctx, g.in(path), user)
	i, err = g.info(i, err)
	return r, i, err
}

// Write implements bothy.Guest.
func (g *Guest) Write(ctx context.Context, path string, r io.Reader, o bothy.WriteOptions) (*bothy.FileInfo, error) {
	return g.info(g.Guest.Write(ctx, g.in(path), r, o))
}

// List implements bothy.Guest.
func (g *Guest) List(ctx context.Context, path, user string, depth int) ([]bothy.FileInfo, error) {
	list, err := g.Guest.List(ctx, g.in(path), user, depth)
	for i := range list {
		_, _ = g.info(&list[i], nil)
	}
	return list, g.err(err)
}

// Stat implements bothy.Guest.
func (g *Guest) Stat(ctx context.Context, path, user string) (*bothy.FileInfo, error) {
	return g.info(g.Guest.Stat(ctx, g.in(path), user))
}

// Mkdir implements bothy.Guest.
func (g *Guest) Mkdir(ctx context.Context, path, user string) (*bothy.FileInfo, error) {
	return g.info(g.Guest.Mkdir(ctx, g.in(path), user))
}

// Move implements bothy.Guest.
func (g *Guest) Move(ctx context.Context, from, to, user string) (*bothy.FileInfo, error) {
	return g.info(g.Guest.Move(ctx, g.in(from), g.in(to), user))
}

// Remove implements bothy.Guest.
func (g *Guest) Remove(ctx context.Context, path, user string) error {
	return g.err(g.Guest.Remove(ctx, g.in(path), user))
}

// Watch implements bothy.Guest.
func (g *Guest) Watch(ctx context.Context, path, user string, recursive bool, fn func(bothy.FileEvent) error) error {
	return g.err(g.Guest.Watch(ctx, g.in(path), user, recursive, fn))
}

// ReadArchive implements bothy.Guest.
func (g *Guest) ReadArchive(ctx context.Context, path, user string, o bothy.ArchiveOptions) (io.ReadCloser, error) {
	r, err := g.Guest.ReadArchive(ctx, g.in(path), user, o)
	return r, g.err(err)
}

// WriteArchive implements bothy.Guest.
func (g *Guest) WriteArchive(ctx context.Context, path, user string, r io.Reader) error {
	return g.err(g.Guest.WriteArchive(ctx, g.in(path), user, r))
}
