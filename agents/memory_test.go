package agents

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/agents/agentstest"
	"github.com/bothy-dev/bothy/internal/repack"
)

// fakeBox is a sandbox of files in memory, whose commands do nothing.
type fakeBox struct {
	Sleeper
	Commands
	bothy.FileService

	mu    sync.Mutex
	files map[string]string
	// archive is what is read instead of the files, if it is set.
	archive func(*tar.Writer) error
}

// fakeBoxes is a service with one sandbox.
type fakeBoxes struct{ *fakeBox }

func (fakeBoxes) CheckCreate(context.Context, bothy.SandboxCreate) error { return nil }

func (fakeBoxes) List(context.Context, bothy.SandboxFilter) (bothy.Page[*bothy.Sandbox], error) {
	return bothy.Page[*bothy.Sandbox]{}, nil
}

func (fakeBoxes) Create(context.Context, bothy.SandboxCreate) (*bothy.Sandbox, error) {
	return &bothy.Sandbox{ID: "sb1", State: bothy.StateRunning}, nil
}

func (fakeBoxes) Get(context.Context, string) (*bothy.Sandbox, error) {
	return &bothy.Sandbox{ID: "sb1", State: bothy.StateRunning}, nil
}

func (fakeBoxes) Terminate(context.Context, string) error { return nil }

func (b *fakeBox) Pause(context.Context, string, bothy.PauseOptions) (*bothy.Snapshot, error) {
	return &bothy.Snapshot{}, nil
}

func (b *fakeBox) Exec(context.Context, string, bothy.ExecRequest) (*bothy.ExecResult, error) {
	return &bothy.ExecResult{}, nil
}

func (b *fakeBox) ReadArchive(_ context.Context, _, folder, _ string, _ bothy.ArchiveOptions) (io.ReadCloser, error) {
	r, w := io.Pipe()
	go func() {
		t := tar.NewWriter(w)
		if b.archive != nil {
			w.CloseWithError(b.archive(t))
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, name := range slices.Sorted(maps.Keys(b.files)) {
			if rel, ok := strings.CutPrefix(name, folder+"/"); ok {
				_ = t.WriteHeader(&tar.Header{Name: rel, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(b.files[name]))})
				_, _ = io.WriteString(t, b.files[name])
			}
		}
		w.CloseWithError(t.Close())
	}()
	return r, nil
}

func (b *fakeBox) WriteArchive(_ context.Context, _, folder, _ string, r io.Reader) error {
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(t)
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeReg {
			b.put(path.Join(folder, h.Name), string(content))
		}
	}
}

func (b *fakeBox) Read(_ context.Context, _, name, _ string) (io.ReadCloser, *bothy.FileInfo, error) {
	content, ok := b.all()[name]
	if !ok {
		return nil, nil, bothy.Errorf(bothy.CodeFileNotFound, "there is no %s", name)
	}
	return io.NopCloser(strings.NewReader(content)), &bothy.FileInfo{Size: int64(len(content))}, nil
}

func (b *fakeBox) Stat(_ context.Context, _, name, _ string) (*bothy.FileInfo, error) {
	return &bothy.FileInfo{Type: bothy.FileRegular, Size: int64(len(b.all()[name]))}, nil
}

func (b *fakeBox) Remove(_ context.Context, _, name, _ string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.files, name)
	return nil
}

func (b *fakeBox) put(name, content string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.files[name] = content
}

func (b *fakeBox) all() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.files)
}

// boxed is a service whose sandboxes are a fake one.
func boxed(t *testing.T) (*Service, *fakeBox) {
	b := &fakeBox{files: map[string]string{}}
	s := newTestService(t, newStore())
	s.o.Sandboxes, s.o.Sleeper, s.o.Commands, s.o.Files = fakeBoxes{b}, b, b, b
	return s, b
}

// hostFiles are the files and folders that the service has made on this host.
func hostFiles(t *testing.T, s *Service) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(s.o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Memories are reconciled between the service and the sandbox, and none is on the host.
func TestMemories(t *testing.T) {
	q := agentstest.New("env_1", testKey, time.Minute)
	s, box := boxed(t)
	working(t, q, s)
	notes := q.MemoryStore("/mnt/memory/notes", "read_write", map[string]string{
		"/a ü.md": "one", "/deep/b.md": "two", "/gone.md": "three", "/both.md": "four", "/cleared.md": "five", "/edited.md": "six",
		"/../../../etc/passwd": "no", "/a//b": "no", "/deep/b.md/below": "no", "/.anthropic-memory-store": "no",
	})
	rules := q.MemoryStore("/mnt/memory/rules", "read_only", map[string]string{"/r.md": "rule"})
	x := q.Session(nil, notes, rules)
	read := func() { t.Helper(); x.Call("read", map[string]any{"file_path": "/mnt/memory/notes/a ü.md"}) }
	read()
	want := map[string]string{
		"/mnt/memory/notes/a ü.md": "one", "/mnt/memory/notes/deep/b.md": "two", "/mnt/memory/notes/gone.md": "three", "/mnt/memory/notes/both.md": "four",
		"/mnt/memory/notes/cleared.md": "five", "/mnt/memory/notes/edited.md": "six", "/mnt/memory/rules/r.md": "rule",
	}
	if got := box.all(); !maps.Equal(got, want) {
		t.Fatalf("the sandbox has %q, want %q", got, want)
	}

	box.put("/mnt/memory/notes/a ü.md", "ONE")
	box.put("/mnt/memory/notes/new.md", "new")
	box.put("/mnt/memory/notes/both.md", "here")
	box.put("/mnt/memory/notes/edited.md", "edited")
	box.put("/mnt/memory/notes/binary", "\xff")
	box.put("/mnt/memory/rules/r.md", "mine")
	_ = box.Remove(t.Context(), "", "/mnt/memory/notes/gone.md", "")
	notes.Put("/both.md", "there")
	notes.Put("/deep/b.md", "TWO")
	notes.Remove("/cleared.md")
	notes.Remove("/edited.md")
	x.End()
	q.AwaitRest(x.ID)
	got := notes.Files()
	for _, name := range []string{"/../../../etc/passwd", "/a//b", "/deep/b.md/below", "/.anthropic-memory-store"} {
		if got[name] != "no" {
			t.Errorf("%s is %q", name, got[name])
		}
		delete(got, name)
	}
	if want := map[string]string{"/a ü.md": "ONE", "/deep/b.md": "TWO", "/both.md": "there", "/new.md": "new", "/edited.md": "edited"}; !maps.Equal(got, want) {
		t.Errorf("the service has %q, want %q", got, want)
	}
	want = map[string]string{
		"/mnt/memory/notes/a ü.md": "ONE", "/mnt/memory/notes/deep/b.md": "TWO", "/mnt/memory/notes/both.md": "there", "/mnt/memory/notes/new.md": "new",
		"/mnt/memory/notes/edited.md": "edited", "/mnt/memory/notes/binary": "\xff", "/mnt/memory/rules/r.md": "rule",
	}
	if got := box.all(); !maps.Equal(got, want) {
		t.Errorf("the sandbox has %q, want %q", got, want)
	}
	if rules.Files()["/r.md"] != "rule" || len(hostFiles(t, s)) > 0 {
		t.Errorf("the read-only store has %q, the host %q", rules.Files(), hostFiles(t, s))
	}
	if f := q.Faults(); len(f) > 0 {
		t.Error(f)
	}
}

// A sandbox or a service with a great many memories, or with large ones, fills no memory.
func TestMemoriesAreLimited(t *testing.T) {
	huge := func(w http.ResponseWriter, page, id, sum, content string, n int) {
		w.Header().Set("Content-Type", "application/json")
		var data []map[string]any
		for i := range n {
			data = append(data, map[string]any{"id": fmt.Sprint(id, page, "_", i), "type": "memory", "path": fmt.Sprint("/", page, "_", i), "content_sha256": sum, "content_size_bytes": len(content)})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data, "next_page": page + "1"})
	}
	entries := func(size int64) func(*tar.Writer) error {
		return func(w *tar.Writer) error {
			for i := range 1_000_000 {
				if err := w.WriteHeader(&tar.Header{Name: fmt.Sprint(i), Typeflag: tar.TypeReg, Size: size}); err != nil {
					return err
				}
				if _, err := io.Copy(w, zeros(size)); err != nil {
					return err
				}
			}
			return w.Close()
		}
	}
	for name, c := range map[string]struct {
		archive func(*tar.Writer) error
		instead func(w http.ResponseWriter, r *http.Request) bool
		want    string
	}{
		"empty files of a sandbox": {archive: entries(0), want: "more than"},
		"large files of a sandbox": {archive: entries(2 << 20), want: "more than 256 MB"},
		"files of a sandbox":       {archive: entries(512 << 10), want: "more than"},
		"pages without end": {instead: func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/memories") {
				huge(w, "p"+r.URL.Query().Get("page"), "m", strings.Repeat("0", 64), "", 50)
				return true
			}
			return false
		}, want: "more than 2000 memories"},
		"a page of many": {instead: func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/memories") {
				huge(w, "p", "m", strings.Repeat("0", 64), "", 5000)
				return true
			}
			return false
		}, want: "more than 2000 memories"},
		"content without end": {instead: func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case strings.HasSuffix(r.URL.Path, "/memories"):
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"data":[{"id":"m","type":"memory","path":"/a","content_sha256":"%s","content_size_bytes":1}]}`, strings.Repeat("0", 64))
			case strings.HasSuffix(r.URL.Path, "/memories/m"):
				_, _ = io.WriteString(w, `{"content":"`)
				_, _ = io.Copy(w, zeros(1<<30))
			default:
				return false
			}
			return true
		}, want: "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			q := agentstest.New("env_1", testKey, time.Minute)
			s, box := boxed(t)
			box.archive = c.archive
			if c.instead != nil {
				q.Instead(c.instead)
			}
			working(t, q, s)
			x := q.Session(nil, q.MemoryStore("/mnt/memory/notes", "read_write", nil))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := x.Call("read", map[string]any{"file_path": "/x"})
			runtime.ReadMemStats(&after)
			if !got.IsError || !strings.Contains(got.Text, c.want) || len(got.Text) > 2000 {
				t.Errorf("the agent is told %.300q, want %q", got.Text, c.want)
			}
			if n := after.HeapSys - before.HeapSys; after.HeapSys > before.HeapSys && n > 512<<20 {
				t.Errorf("it took %d MB", n>>20)
			}
			x.End()
			q.AwaitRest(x.ID)
		})
	}
}

// A sandbox with many files that are no memories does not fill the log.
func TestWarningsAreLimited(t *testing.T) {
	q := agentstest.New("env_1", testKey, time.Minute)
	s, box := boxed(t)
	var log bytes.Buffer
	s.o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	working(t, q, s)
	x := q.Session(nil, q.MemoryStore("/mnt/memory/notes", "read_write", map[string]string{"/a": "a"}))
	x.Call("read", map[string]any{"file_path": "/x"})
	for i := range 100 {
		box.put(fmt.Sprint("/mnt/memory/notes/", i), "\xff")
	}
	x.End()
	q.AwaitRest(x.ID)
	if n := strings.Count(log.String(), "not taken by the service"); n == 0 || n > maxWarnings {
		t.Errorf("%d warnings", n)
	}
}

// A session's skills are copied into the sandbox, except bad ones, and are not on the host.
func TestSkills(t *testing.T) {
	q := agentstest.New("env_1", testKey, time.Minute)
	s, box := boxed(t)
	working(t, q, s)
	x := q.Session([]string{
		q.Skill("pdf", zipOf(t, map[string]string{"pdf/SKILL.md": "# pdf", "pdf/scripts/ü b.sh": "echo"})),
		q.Skill("../hostile", zipOf(t, map[string]string{"../../../escape": "no"})),
		q.Skill("..", zipOf(t, map[string]string{"f": "by its id"})),
		q.Skill("pdf", zipOf(t, map[string]string{"f": "by its id"})),
		q.Skill("bad", []byte("no archive")),
		q.Skill("bomb", zipOf(t, map[string]string{"zeros": strings.Repeat("\x00", 40<<20)})),
		q.Skill("large", make([]byte, repack.MaxArchive+1)),
	})
	x.Call("read", map[string]any{"file_path": "/x"})
	got := box.all()
	want := map[string]string{
		"/workspace/skills/pdf/SKILL.md": "# pdf", "/workspace/skills/pdf/scripts/ü b.sh": "echo", "/workspace/skills/hostile/escape": "no",
		"/workspace/skills/skill_0003/f": "by its id", "/workspace/skills/skill_0004/f": "by its id",
	}
	if !maps.Equal(got, want) {
		t.Errorf("the sandbox has %q, want %q", got, want)
	}
	if names := hostFiles(t, s); len(names) > 0 {
		t.Errorf("the host has %q", names)
	}
	x.End()
	q.AwaitRest(x.ID)
}

func zipOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, content := range files {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// zeros are n bytes of zero.
func zeros(n int64) io.Reader { return io.LimitReader(zeroReader{}, n) }

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }
