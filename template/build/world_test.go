package build

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template"
	"github.com/bothy-dev/bothy/template/tree"
	"golang.org/x/sys/unix"
)

// world is a builder whose sandboxes are trees, in which a few words stand for programs:
//
//	write PATH TEXT…   print TEXT…   show PATH   owner PATH   remove PATH   daemon   fail   wait
type world struct {
	*testing.T
	*Builder
	library *template.Library
	dir     string
	o       Options

	mu    sync.Mutex
	boxes map[string]*box
	// secretFiles are the disks of sandboxes.
	secretFiles []string
	ran         []string // commands
	networks    []bothy.NetworkMode
	entered     chan string // gets the id of a sandbox that waits
	// later is how much later it is in sandboxes than here.
	later      time.Duration
	refuseSave error
	// refuse fails the starts of some sandboxes. Optional.
	refuse func(context.Context, *store.Template) error
}

type box struct {
	base, now *tree.Tree
	template  *store.Template
	req       bothy.SandboxCreate
	image     string
	program   bothy.ExecRequest // what runs in the background
	asked     int               // how often it was asked whether that is ready
	daemons   int               // processes that commands have left
	ended     chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, dir: t.TempDir(), boxes: map[string]*box{}, entered: make(chan string, 10)}
	w.library = template.NewLibrary(filepath.Join(w.dir, "templates"), template.Options{})
	files := tree.New(epoch)
	for name, text := range map[string]string{"etc/passwd": "root:x:0:0::/root:/bin/sh\napp:x:7:8::/:/bin/sh\n", "etc/group": "team:x:9:\n", "bin/sh": "sh", "old": "old"} {
		if err := files.Put(name, &tree.Node{Mode: unix.S_IFREG | 0o644, Time: epoch, Data: tree.Text(text)}); err != nil {
			t.Fatal(err)
		}
	}
	image := filepath.Join(w.dir, "base.erofs")
	if err := files.Write(image, tree.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.library.Adopt(t.Context(), &store.Template{Template: bothy.Template{Version: bothy.ManifestVersion, Name: "base", Env: map[string]string{"BASE": "1"}}}, image); err != nil {
		t.Fatal(err)
	}
	same := func(b []byte, _ string) ([]byte, error) { return bytes.ToUpper(b), nil }
	w.o = Options{
		Dir: filepath.Join(w.dir, "builds"), Cache: filepath.Join(w.dir, "cache"), Sandboxes: w, Files: boxFiles{w: w}, Library: w.library,
		Bounded: func(engine string) bool { return engine != "vm" },
		Seal:    same, Open: func(b []byte, _ string) ([]byte, error) { return bytes.ToLower(b), nil },
	}
	w.open()
	t.Cleanup(func() { w.Builder.Close() })
	return w
}

func (w *world) open() {
	w.Helper()
	b, err := New(w.o)
	if err == nil {
		w.Builder = b
		err = b.Recover(w.Context())
		b.Resume()
	}
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) now() time.Time { return time.Now().Add(w.later).Truncate(time.Second) }

func (w *world) me() context.Context { return w.as(bothy.DefaultProject) }

func (w *world) as(project string) context.Context {
	return bothy.WithCaller(w.Context(), &bothy.Caller{ProjectID: project, Scopes: []bothy.Scope{bothy.ScopeAdmin}})
}

// StartFrom implements Sandboxes.
func (w *world) StartFrom(ctx context.Context, req bothy.SandboxCreate, t *store.Template, files string) (*bothy.Sandbox, error) {
	if w.refuse != nil {
		if err := w.refuse(ctx, t); err != nil {
			return nil, err
		}
	}
	base, err := tree.Read(ctx, t.RootFS)
	if err != nil {
		return nil, err
	}
	own := filepath.Join(w.dir, rand.Text()) // the builder removes its file
	now := base.Clone()
	if files != "" {
		text, err := os.ReadFile(files)
		if err == nil {
			err = os.WriteFile(own, text, 0o600)
		}
		if err != nil {
			return nil, err
		}
		defer func() { w.secretFiles = append(w.secretFiles, own) }()
		if err := now.Apply(context.Background(), own, tree.Overlay, tree.NewBudget()); err != nil {
			return nil, err
		}
	}
	// What the agent of a sandbox leaves.
	if err := now.Put("etc/hostname", &tree.Node{Mode: unix.S_IFREG | 0o644, Time: w.now(), Data: tree.Text("box")}); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	id := fmt.Sprintf("sbx%d", len(w.boxes))
	w.boxes[id] = &box{base: base, now: now, template: t, req: req, image: t.RootFS, ended: make(chan struct{})}
	w.networks = append(w.networks, req.Network.Mode)
	return &bothy.Sandbox{ID: id, State: bothy.StateRunning, Engine: req.Engine}, nil
}

// SaveFiles implements Sandboxes.
func (w *world) SaveFiles(_ context.Context, id, path string) error {
	if w.refuseSave != nil {
		return w.refuseSave
	}
	b := w.box(id)
	now := b.now.Clone()
	if n, err := now.Lget("run"); err == nil { // what is in memory is not among the files
		n = n.Bare()
		if old, err := b.base.Lget("run"); err == nil {
			n = old
		}
		if err := now.Put("run", n); err != nil {
			return err
		}
	}
	return w.Builder.writeLayer(now, b.base, path)
}

func (w *world) box(id string) *box {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.boxes[id]
}

// ExecStream implements Sandboxes.
func (w *world) ExecStream(ctx context.Context, id string, req bothy.ExecRequest, fn func(bothy.ExecEvent) error) error {
	b := w.box(id)
	line := strings.Join(req.Command.Args, " ")
	line = strings.TrimPrefix(line, "/bin/sh -c ")
	w.mu.Lock()
	w.ran = append(w.ran, line)
	w.mu.Unlock()
	end := bothy.ExecEvent{IsFinal: true}
	for command := range strings.SplitSeq(os.Expand(line, func(name string) string { return req.Env[name] }), " && ") {
		word, rest, _ := strings.Cut(command, " ")
		path, text, _ := strings.Cut(rest, " ")
		switch word {
		case "write":
			n := &tree.Node{Mode: unix.S_IFREG | 0o644, Time: w.now(), Data: tree.Text(text)}
			if err := b.now.Put(path, n); err != nil {
				return err
			}
		case "print":
			_ = fn(bothy.ExecEvent{Stream: "stdout", Data: rest + "\n"})
		case "show":
			n, err := b.now.Get(path)
			if err != nil {
				end.ExitCode = 1
				break
			}
			text, _ := n.Data.Read(1 << 20)
			_ = fn(bothy.ExecEvent{Stream: "stdout", Data: string(text) + "\n"})
		case "owner":
			n, err := b.now.Get(path)
			if err != nil {
				end.ExitCode = 1
				break
			}
			_ = fn(bothy.ExecEvent{Stream: "stdout", Data: fmt.Sprintf("%d:%d %o\n", n.UID, n.GID, n.Mode&0o7777)})
		case "remove":
			_ = b.now.Remove(path)
		case "daemon":
			b.daemons++
		case "fail":
			end.ExitCode = 3
		case "slow":
			end.TimedOut = true
		case "wait":
			w.entered <- id
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-b.ended:
				return errors.New("the sandbox ended")
			}
		default:
			end.ExitCode = 127
		}
	}
	return fn(end)
}

// List implements Sandboxes.
func (w *world) List(_ context.Context, f bothy.SandboxFilter) (p bothy.Page[*bothy.Sandbox], err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, b := range w.boxes {
		if !b.isEnded() && b.req.Metadata[metadataKey] == f.Metadata[metadataKey] {
			p.Items = append(p.Items, &bothy.Sandbox{ID: id})
		}
	}
	return p, nil
}

func (b *box) isEnded() bool {
	select {
	case <-b.ended:
		return true
	default:
		return false
	}
}

// Terminate implements Sandboxes.
func (w *world) Terminate(_ context.Context, id string) error {
	b := w.box(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !b.isEnded() {
		close(b.ended)
	}
	return nil
}

// left counts the sandboxes that live.
func (w *world) left() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.boxes {
		if !b.isEnded() {
			n++
		}
	}
	return n
}

// commands returns what was run since the last call.
func (w *world) commands() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.ran
	w.ran = nil
	return all
}

// upload sends a context: names and texts.
func (w *world) upload(files ...string) string {
	w.Helper()
	c, err := w.UploadContext(w.me(), bytes.NewReader(tarOf(files...)))
	if err != nil {
		w.Fatal(err)
	}
	return c.ID
}

// tarOf is a tar of files, each given by its name and its content.
func tarOf(files ...string) []byte {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		_ = t.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1])), ModTime: time.Unix(1e9, 0), Typeflag: tar.TypeReg})
		_, _ = t.Write([]byte(files[i+1]))
	}
	t.Close()
	return b.Bytes()
}

// result is a build that has ended.
type result struct {
	*bothy.Build
	log      string
	template *bothy.Template
	files    *tree.Tree
}

func (w *world) build(req bothy.BuildRequest) result { w.Helper(); return w.buildAs(w.me(), req) }

func (w *world) buildAs(ctx context.Context, req bothy.BuildRequest) result {
	w.Helper()
	if req.Name == "" {
		req.Name = "made"
	}
	b, err := w.StartBuild(ctx, req)
	if err != nil {
		w.Fatal(err)
	}
	return w.wait(ctx, b.ID)
}

func (w *world) wait(ctx context.Context, id string) (r result) {
	w.Helper()
	var log strings.Builder
	err := w.BuildLog(ctx, id, 0, func(_ int64, e bothy.BuildEvent) error {
		fmt.Fprintf(&log, "%s|%s%s\n", e.Step, e.Message, e.Error)
		r.template = e.Template
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	r.log = log.String()
	if r.Build, err = w.Builder.Build(ctx, id); err != nil {
		w.Fatal(err)
	}
	if r.template != nil {
		t, err := w.library.LookupFor(ctx, bothy.CallerFrom(ctx).ProjectID, r.template.Name)
		if err != nil {
			w.Fatal(err)
		}
		if r.files, err = tree.Read(ctx, t.RootFS); err != nil {
			w.Fatal(err)
		}
	}
	return r
}

// text is what a file of a result holds, or "none".
func (r result) text(name string) string {
	if r.files == nil {
		return "no template: " + r.Error
	}
	n, err := r.files.Get(name)
	if err != nil {
		return "none"
	}
	b, _ := n.Data.Read(1 << 20)
	return string(b)
}

func deviceTar() []byte {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	_ = t.WriteHeader(&tar.Header{Name: "sda", Typeflag: tar.TypeBlock, Devmajor: 8})
	t.Close()
	return b.Bytes()
}

// boxFiles are the files of sandboxes.
type boxFiles struct {
	bothy.FileService
	w *world
}

func (f boxFiles) Write(_ context.Context, id, path string, r io.Reader, o bothy.WriteOptions) (*bothy.FileInfo, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	b, n := f.w.box(id), tree.Node{Mode: unix.S_IFREG | o.Mode}
	if old, err := b.now.Get(path); err == nil && o.Mode == 0 {
		n = *old
	}
	n.Time, n.Data = f.w.now(), tree.Text(string(text))
	return nil, b.now.Put(path, &n)
}

func (f boxFiles) ReadArchive(_ context.Context, id, path, _ string, o bothy.ArchiveOptions) (io.ReadCloser, error) {
	n, err := f.w.box(id).now.Get(path)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeFileNotFound, "%s is not there", path)
	}
	t := tree.Sub(n)
	for _, name := range o.Exclude {
		_ = t.Remove(name)
	}
	var b bytes.Buffer
	err = t.WriteLayer(tree.New(time.Time{}), &b)
	return io.NopCloser(&b), err
}

func (f boxFiles) Read(_ context.Context, id, path, _ string) (io.ReadCloser, *bothy.FileInfo, error) {
	n, err := f.w.box(id).now.Get(path)
	if err != nil || !n.IsFile() {
		return nil, nil, bothy.Errorf(bothy.CodeFileNotFound, "%s is not there", path)
	}
	text, err := n.Data.Read(1 << 20)
	return io.NopCloser(bytes.NewReader(text)), nil, err
}

func (f boxFiles) List(_ context.Context, id, path, _ string, _ int) (list []bothy.FileInfo, err error) {
	b := f.w.box(id)
	if path == "/proc" {
		for i := range b.daemons {
			list = append(list, bothy.FileInfo{Name: fmt.Sprint(100 + i)})
		}
		return list, nil
	}
	n, err := b.now.Get(path)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeFileNotFound, "%s is not there", path)
	}
	for _, name := range n.Names() {
		list = append(list, bothy.FileInfo{Name: name})
	}
	return list, nil
}
