package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/api/rest"
	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/internal/freeport"
)

type fixture struct {
	*testing.T
	*client.Client
	ctx    context.Context
	url    string
	world  *apitest.World
	tokens *apitest.Tokens
}

// start runs the real API with fake services, and a client of it.
func start(t *testing.T) *fixture {
	t.Helper()
	w, tokens := apitest.New(), apitest.NewTokens()
	s := api.New(api.Services{Services: rest.Services{
		Tokens: tokens, Sandboxes: w, Exec: w, Code: w, Files: w.Files(), Templates: w, Capturer: w, Builder: &apitest.Builder{Made: w.MadeTemplate}, Snapshots: w, Events: w, Network: w, Metrics: w, Ports: w, Mover: w, Logs: w, Limits: w, Host: &apitest.Host{}, Cluster: &apitest.Cluster{},
	}, Answers: &apitest.Answers{}, Log: slog.New(slog.DiscardHandler)}, api.Config{Listen: "127.0.0.1:0"})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return &fixture{t, client.New(s.URL()+"/", apitest.Writer), t.Context(), s.URL(), w, tokens}
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) create() string {
	f.Helper()
	b, err := f.Sandboxes.Create(f.ctx, bothy.SandboxCreate{})
	f.must(err)
	return b.ID
}

func wantCode(t *testing.T, err error, code bothy.Code) *bothy.Error {
	t.Helper()
	var e *bothy.Error
	if !errors.As(err, &e) || e.Code != code || e.Detail == "" || e.Hint == "" {
		t.Fatalf("error %v, want the code %s with detail and hint", err, code)
	}
	return e
}

func ptr[T any](v T) *T { return &v }

var prefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func TestSandboxes(t *testing.T) {
	f := start(t)
	req := bothy.SandboxCreate{
		Template: "node-22", SnapshotID: "snap-1", Name: "n", CPU: 0.5, MemoryMB: 128, DiskMB: 256, Size: "small",
		Network: &bothy.Network{
			Mode: bothy.NetworkRestricted, Presets: []string{"pypi"}, AllowDomains: []string{"*.example.org"},
			AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, AllowPorts: []uint16{443},
		},
		TimeoutSeconds: ptr(0), OnTimeout: bothy.TimeoutPause, IdleSeconds: 60, AutoResume: true, OnHostLoss: bothy.HostLossResume, CheckpointSeconds: 30, Env: map[string]string{"A": "b"},
		Secrets:  []bothy.Secret{{Name: "k", Value: "v", Hosts: []string{"api.example.com"}, Header: "X-Key"}},
		Metadata: map[string]string{"x.y": "n & m"}, Engine: "fake",
	}
	b, err := f.Sandboxes.Create(f.ctx, req)
	f.must(err)
	if d := cmp.Diff(req, f.world.Created, prefixes); d != "" {
		t.Fatalf("the request arrived as another (-sent +arrived):\n%s", d)
	}
	got, err := f.Sandboxes.Get(f.ctx, b.ID)
	f.must(err)
	if d := cmp.Diff(b, got, prefixes); d != "" {
		t.Fatal(d)
	}
	u := bothy.SandboxUpdate{
		TimeoutSeconds: ptr(0), OnTimeout: ptr(bothy.TimeoutPause), IdleSeconds: ptr(0), Metadata: map[string]string{},
		Name: ptr(""), Network: &bothy.Network{Mode: bothy.NetworkOff}, OnHostLoss: ptr(bothy.HostLossFail), CheckpointSeconds: ptr(0),
	}
	_, err = f.Sandboxes.Update(f.ctx, b.ID, u)
	f.must(err)
	if d := cmp.Diff(u, f.world.Updated, prefixes); d != "" {
		t.Fatalf("the change arrived as another (-sent +arrived):\n%s", d)
	}
	_, err = f.Sandboxes.Update(f.ctx, b.ID, bothy.SandboxUpdate{})
	f.must(err)
	if d := cmp.Diff(bothy.SandboxUpdate{}, f.world.Updated, prefixes); d != "" {
		t.Fatalf("no change arrived as one:\n%s", d)
	}
	if _, err := f.Sandboxes.Restart(f.ctx, b.ID); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("one that runs was restarted: %v", err)
	}
	f.must(f.Sandboxes.Terminate(f.ctx, b.ID))
	f.must(f.Sandboxes.Terminate(f.ctx, b.ID))
}

func TestListPages(t *testing.T) {
	f := start(t)
	for _, name := range []string{"a", "b", "c"} {
		_, err := f.Sandboxes.Create(f.ctx, bothy.SandboxCreate{Name: name, Metadata: map[string]string{"x.y": "n & m"}})
		f.must(err)
	}
	filter := bothy.SandboxFilter{Metadata: map[string]string{"x.y": "n & m"}, States: []bothy.State{bothy.StateRunning, bothy.StatePaused}, Limit: 2}
	var got string
	for {
		p, err := f.Sandboxes.List(f.ctx, filter)
		f.must(err)
		for _, b := range p.Items {
			got += b.Name
		}
		if filter.Cursor = p.NextCursor; filter.Cursor == "" {
			break
		}
	}
	if got != "cba" {
		t.Fatalf("listed %q", got)
	}
}

func TestExec(t *testing.T) {
	f := start(t)
	id := f.create()
	req := bothy.ExecRequest{
		Command: bothy.Command{Args: []string{"echo", "hi"}}, Cwd: "/", Env: map[string]string{"A": "b"}, User: "root",
		TimeoutSeconds: 1.5, Stdin: "in",
	}
	r, err := f.Exec.Exec(f.ctx, id, req)
	f.must(err)
	if r.Stdout != "hi\nin" || r.ExitCode != 0 || r.PID != 7 {
		t.Fatalf("%+v", r)
	}
	if d := cmp.Diff(req, f.world.Executed); d != "" {
		t.Fatalf("the command arrived as another (-sent +arrived):\n%s", d)
	}
	var events []bothy.ExecEvent
	f.must(f.Exec.ExecStream(f.ctx, id, bothy.ExecRequest{Command: bothy.Command{Line: "fail"}}, func(e bothy.ExecEvent) error {
		events = append(events, e)
		return nil
	}))
	want := []bothy.ExecEvent{{Stream: "stderr", Data: "it failed\n"}, {IsFinal: true, ExitCode: 3, DurationMS: 12, PID: 7}}
	if d := cmp.Diff(want, events); d != "" {
		t.Fatalf("-want +got\n%s", d)
	}
}

func TestGivingUpAStreamEndsTheCommand(t *testing.T) {
	f := start(t)
	id := f.create()
	enough := errors.New("enough")
	err := f.Exec.ExecStream(f.ctx, id, bothy.ExecRequest{Command: bothy.Command{Line: "wait"}}, func(bothy.ExecEvent) error { return enough })
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	if got := <-f.world.Canceled; got != id {
		t.Fatalf("canceled %s", got)
	}
}

func TestCanceledContext(t *testing.T) {
	f := start(t)
	id := f.create()
	ctx, cancel := context.WithCancel(f.ctx)
	err := f.Exec.ExecStream(ctx, id, bothy.ExecRequest{Command: bothy.Command{Line: "wait"}}, func(bothy.ExecEvent) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	<-f.world.Canceled
}

func TestLostStream(t *testing.T) {
	f := start(t)
	err := f.Exec.ExecStream(f.ctx, f.create(), bothy.ExecRequest{Command: bothy.Command{Line: "lost"}}, func(bothy.ExecEvent) error { return nil })
	if e := wantCode(t, err, bothy.CodeGuest); !strings.Contains(e.Detail, "was lost") {
		t.Fatal(e)
	}
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"stream\":\"stdout\",\"data\":\"x\"}\n\n")
	}))
	defer cut.Close()
	err = client.New(cut.URL, "").Exec.ExecStream(f.ctx, "x", bothy.ExecRequest{}, func(bothy.ExecEvent) error { return nil })
	wantCode(t, err, client.CodeUnreachable)
}

func TestBackgroundProcess(t *testing.T) {
	f := start(t)
	id := f.create()
	r, err := f.Exec.Exec(f.ctx, id, bothy.ExecRequest{Command: bothy.Command{Line: "cat"}, Background: true})
	f.must(err)
	f.must(f.Exec.Stdin(f.ctx, id, r.PID, []byte("hello"), false))
	all, err := f.Exec.Processes(f.ctx, id)
	f.must(err)
	if len(all) != 1 || all[0].PID != r.PID || all[0].OutputEnd != 5 {
		t.Fatalf("%+v", all)
	}
	var out string
	f.must(f.Exec.Output(f.ctx, id, r.PID, 1, func(e bothy.ExecEvent) error {
		out += e.Data
		if e.Data == "ello" {
			return f.Exec.Stdin(f.ctx, id, r.PID, []byte{0xff, 'x'}, false)
		}
		if e.IsFinal {
			if e.ExitCode != 137 {
				t.Errorf("exit code %d", e.ExitCode)
			}
			return nil
		}
		return f.Exec.Signal(f.ctx, id, r.PID, 9)
	}))
	if !strings.HasPrefix(out, "ello") || !strings.HasSuffix(out, "x") {
		t.Fatalf("output %q", out)
	}
	wantCode(t, f.Exec.Signal(f.ctx, id, 9999, 9), bothy.CodeProcessNotFound)
}

func TestCode(t *testing.T) {
	f := start(t)
	id := f.create()
	c, err := f.Code.CreateContext(f.ctx, id, bothy.CodeContextCreate{Language: "bash", Cwd: "/"})
	f.must(err)
	req := bothy.CodeRequest{Code: "1", Language: "python", ContextID: c.ID, TimeoutSeconds: 2, Env: map[string]string{"A": "b"}}
	r, err := f.Code.RunCode(f.ctx, id, req)
	f.must(err)
	if d := cmp.Diff(req, f.world.Ran); d != "" || r.Results[0]["text/plain"] != "1" {
		t.Fatalf("%+v\n%s", r, d)
	}
	var events []bothy.CodeEvent
	f.must(f.Code.RunCodeStream(f.ctx, id, bothy.CodeRequest{Code: "raise"}, func(e bothy.CodeEvent) error {
		events = append(events, e)
		return nil
	}))
	if len(events) != 1 || !events[0].IsFinal || events[0].Error.Name != "ValueError" {
		t.Fatalf("%+v", events)
	}
	all, err := f.Code.Contexts(f.ctx, id)
	f.must(err)
	if d := cmp.Diff([]bothy.CodeContext{*c}, all); d != "" {
		t.Fatal(d)
	}
	f.must(errors.Join(f.Code.InterruptContext(f.ctx, id, c.ID), f.Code.RestartContext(f.ctx, id, c.ID), f.Code.DeleteContext(f.ctx, id, c.ID)))
	wantCode(t, f.Code.DeleteContext(f.ctx, id, c.ID), bothy.CodeContextNotFound)
	_, err = f.Code.RunCode(f.ctx, id, req)
	wantCode(t, err, bothy.CodeContextNotFound)
}

func TestTerminal(t *testing.T) {
	f := start(t)
	id := f.create()
	term, err := f.Exec.Terminal(f.ctx, id, bothy.TerminalRequest{Command: bothy.Command{Line: "sh"}, Cols: 100, Rows: 30, Env: map[string]string{"NAME": "v"}})
	f.must(err)
	defer term.Close()
	if term.PID() != 42 {
		t.Errorf("pid %d", term.PID())
	}
	f.must(term.Resize(120, 40))
	_, err = term.Write([]byte("exit\n"))
	f.must(err)
	out, err := io.ReadAll(term)
	f.must(err)
	for _, want := range []string{"100x30 sh v", "resized to 120x40", "exit\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("output %q lacks %q", out, want)
		}
	}
	if code, err := term.Wait(); err != nil || code != 4 {
		t.Fatalf("exit %d, %v", code, err)
	}
	f.must(term.Close())

	left, err := f.Exec.Terminal(f.ctx, id, bothy.TerminalRequest{})
	f.must(err)
	f.must(left.Close())
	if _, err := left.Wait(); err == nil {
		t.Error("a terminal that was hung up has an exit code")
	}
	_, err = f.Exec.Terminal(f.ctx, "nowhere", bothy.TerminalRequest{})
	wantCode(t, err, bothy.CodeSandboxNotFound)
	_, err = f.Exec.Terminal(f.ctx, id, bothy.TerminalRequest{Command: bothy.Command{Args: []string{"a"}}})
	wantCode(t, err, bothy.CodeUnsupported)

	ended, err := f.Exec.Terminal(f.ctx, id, bothy.TerminalRequest{})
	f.must(err)
	f.tokens.End("tok_writer", bothy.Errorf(bothy.CodeUnauthenticated, "this API key was revoked"))
	_, err = io.ReadAll(ended)
	wantCode(t, err, bothy.CodeUnauthenticated)
	_, err = ended.Wait()
	wantCode(t, err, bothy.CodeUnauthenticated)
	if !strings.Contains(err.Error(), "this API key was revoked") {
		t.Error(err)
	}
}

func TestMetricsAndPorts(t *testing.T) {
	f := start(t)
	id := f.create()
	m, err := f.Metrics.Metrics(f.ctx, id)
	f.must(err)
	if m.MemoryBytes != 2 || m.EgressBytes != 4 || len(m.HeldAwakeBy) != 1 {
		t.Fatalf("%+v", m)
	}
	c, err := f.Ports.DialPort(f.ctx, id, 7)
	f.must(err)
	defer c.Close()
	sent := bytes.Repeat([]byte("\x00\xff0123456789"), 1<<14)
	go func() { _, _ = c.Write(sent) }()
	got := make([]byte, len(sent))
	_, err = io.ReadFull(c, got)
	f.must(err)
	if !bytes.Equal(got, sent) {
		t.Fatal("different bytes were returned")
	}
	_, err = c.Write([]byte("bye"))
	f.must(err)
	if n, err := c.Read(got); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("after the end: %d, %v", n, err)
	}
	_, err = f.Ports.DialPort(f.ctx, id, 9)
	wantCode(t, err, bothy.CodeConflict)
	_, err = f.Ports.DialPort(f.ctx, id, 0)
	wantCode(t, err, bothy.CodeInvalid)
}

func TestFiles(t *testing.T) {
	f := start(t)
	id := f.create()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	big := bytes.Repeat([]byte("0123456789abcdef"), 3<<16) // beyond largeUpload
	local := filepath.Join(t.TempDir(), "f")
	f.must(os.WriteFile(local, []byte("from a file"), 0o600))
	file, err := os.Open(local)
	f.must(err)
	defer file.Close()
	for path, body := range map[string]io.Reader{
		"/a/ünï & ?#.txt": strings.NewReader("hello"), "/a/empty": strings.NewReader(""), "/a/big": bytes.NewReader(big),
		"/a/piped": io.MultiReader(strings.NewReader("one "), strings.NewReader("two")), "/a/file": file,
	} {
		info, err := f.Files.Write(f.ctx, id, path, body, bothy.WriteOptions{Mode: 0o755, User: "root", ModifiedAt: at})
		f.must(err)
		if info.Path != path || info.Mode != "0755" || info.Owner != "root" || !info.ModifiedAt.Equal(at) {
			t.Fatalf("%+v", info)
		}
	}
	for path, want := range map[string]string{
		"/a/ünï & ?#.txt": "hello", "/a/empty": "", "/a/big": string(big), "/a/piped": "one two", "/a/file": "from a file",
	} {
		r, info, err := f.Files.Read(f.ctx, id, path, "")
		f.must(err)
		got, err := io.ReadAll(r)
		f.must(errors.Join(err, r.Close()))
		if string(got) != want || info.Path != path || info.Size != int64(len(want)) {
			t.Fatalf("%s: %d bytes, %+v", path, len(got), info)
		}
		stat, err := f.Files.Stat(f.ctx, id, path, "")
		f.must(err)
		if d := cmp.Diff(info, stat); d != "" {
			t.Fatal(d)
		}
	}
	entries, err := f.Files.List(f.ctx, id, "/a", "", 1)
	f.must(err)
	if len(entries) != 5 {
		t.Fatalf("%+v", entries)
	}
	_, _, err = f.Files.Read(f.ctx, id, "/a", "")
	wantCode(t, err, bothy.CodeIsADirectory)
	_, err = f.Files.List(f.ctx, id, "/a/big", "", 1)
	wantCode(t, err, bothy.CodeNotADirectory)
	_, err = f.Files.Mkdir(f.ctx, id, "/b", "")
	f.must(err)
	moved, err := f.Files.Move(f.ctx, id, "/a/big", "/b/big", "")
	f.must(err)
	if moved.Path != "/b/big" {
		t.Fatalf("%+v", moved)
	}
	f.must(f.Files.Remove(f.ctx, id, "/a", ""))
	_, err = f.Files.Stat(f.ctx, id, "/a/empty", "")
	wantCode(t, err, bothy.CodeFileNotFound)
	f.must(f.Files.WriteArchive(f.ctx, id, "/b", "", strings.NewReader("a tar")))
	tar, err := f.Files.ReadArchive(f.ctx, id, "/b", "", bothy.ArchiveOptions{Gzip: true, Exclude: []string{"*.log", "x"}})
	f.must(err)
	text, err := io.ReadAll(tar)
	f.must(errors.Join(err, tar.Close()))
	if string(text) != "tar of /b exclude=%2A.log&exclude=x&gzip=true" {
		t.Fatalf("%q", text)
	}
}

// An upload to an impossible path is refused with a reason before its bytes are sent.
func TestRefusedUpload(t *testing.T) {
	f := start(t)
	sent := &counter{}
	_, err := f.Files.Write(f.ctx, "nowhere", "/x", io.LimitReader(sent, 1<<30), bothy.WriteOptions{Mode: 0o10000})
	wantCode(t, err, bothy.CodeInvalid)
	if sent.n > 0 {
		t.Errorf("%d bytes were sent", sent.n)
	}
}

type counter struct{ n int }

func (c *counter) Read(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}

func TestBrokenDownload(t *testing.T) {
	f := start(t)
	id := f.create()
	_, err := f.Files.Write(f.ctx, id, "/broken", strings.NewReader("0123456789"), bothy.WriteOptions{})
	f.must(err)
	r, _, err := f.Files.Read(f.ctx, id, "/broken", "")
	f.must(err)
	defer r.Close()
	if got, err := io.ReadAll(r); err == nil {
		t.Fatalf("half a file, %q, was taken for a whole one", got)
	}
}

func TestWatch(t *testing.T) {
	f := start(t)
	id := f.create()
	_, err := f.Files.Mkdir(f.ctx, id, "/w", "")
	f.must(err)
	enough := errors.New("enough")
	err = f.Files.Watch(f.ctx, id, "/w", "", true, func(e bothy.FileEvent) error {
		if e.Type != "create" || e.Path != "/w/new" || e.Name != "new true" {
			t.Errorf("%+v", e)
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	wantCode(t, f.Files.Watch(f.ctx, id, "/nowhere", "", false, nil), bothy.CodeFileNotFound)
}

func TestSnapshots(t *testing.T) {
	f := start(t)
	id := f.create()
	n, err := f.Snapshots.Pause(f.ctx, id, bothy.PauseOptions{FilesOnly: true, Name: "p"})
	f.must(err)
	if n.Kind != bothy.SnapshotFiles || n.Name != "p" || n.SandboxID != id {
		t.Fatalf("%+v", n)
	}
	_, err = f.Exec.Exec(f.ctx, id, bothy.ExecRequest{Command: bothy.Command{Line: "echo"}})
	wantCode(t, err, bothy.CodeSandboxPaused)
	wantCode(t, f.Snapshots.DeleteSnapshot(f.ctx, n.ID), bothy.CodeSnapshotInUse)
	for _, name := range []string{n.ID, id} {
		b, err := f.Snapshots.Resume(f.ctx, name, bothy.ResumeOptions{})
		f.must(err)
		if b.ID != id || b.State != bothy.StateRunning {
			t.Fatalf("%+v", b)
		}
	}
	for _, name := range []string{n.ID, id} {
		b, err := f.Snapshots.Resume(f.ctx, name, bothy.ResumeOptions{FilesOnly: true})
		f.must(err)
		if b.ID != id || b.Resumed.Kind != bothy.SnapshotFiles {
			t.Fatalf("%+v", b)
		}
	}
	files, err := f.Snapshots.CreateSnapshot(f.ctx, id, bothy.SnapshotCreate{FilesOnly: true})
	f.must(err)
	if files.Kind != bothy.SnapshotFiles {
		t.Fatalf("%+v", files)
	}
	_, err = f.Snapshots.Resume(f.ctx, "nowhere", bothy.ResumeOptions{})
	wantCode(t, err, bothy.CodeSandboxNotFound)
	live, err := f.Snapshots.CreateSnapshot(f.ctx, id, bothy.SnapshotCreate{Name: "live"})
	f.must(err)
	got, err := f.Snapshots.Snapshot(f.ctx, live.ID)
	f.must(err)
	if d := cmp.Diff(live, got, cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "ProjectID" }, cmp.Ignore())); d != "" {
		t.Fatal(d)
	}
	p, err := f.Snapshots.Snapshots(f.ctx, bothy.SnapshotFilter{SandboxID: id, Name: "live"})
	f.must(err)
	if len(p.Items) != 1 || p.Items[0].ID != live.ID {
		t.Fatalf("%+v", p)
	}
	copies, err := f.Snapshots.Fork(f.ctx, id, bothy.ForkRequest{Count: 2, Name: "copy", Metadata: map[string]string{"a": "b"}})
	f.must(err)
	if len(copies) != 2 || copies[0].ID == id || copies[1].Name != "copy" || copies[1].Metadata["a"] != "b" {
		t.Fatalf("%+v", copies)
	}
	b, err := f.Snapshots.Rollback(f.ctx, id, live.ID)
	f.must(err)
	if b.ParentSnapshotID != live.ID {
		t.Fatalf("%+v", b)
	}
	f.must(f.Snapshots.DeleteSnapshot(f.ctx, live.ID))
	_, err = f.Snapshots.Snapshot(f.ctx, live.ID)
	wantCode(t, err, bothy.CodeSnapshotNotFound)
}

func TestTemplates(t *testing.T) {
	f := start(t)
	var steps []string
	built, err := f.Templates.BuildTemplate(f.ctx, bothy.TemplateBuild{Name: "mine", Image: "debian"}, func(e bothy.BuildEvent) { steps = append(steps, e.Step) })
	f.must(err)
	if built.Name != "mine" || built.Source != "debian" || strings.Join(steps, " ") != "fetch done" {
		t.Fatalf("%+v after %v", built, steps)
	}
	all, err := f.Templates.Templates(f.ctx)
	f.must(err)
	if len(all) != 2 {
		t.Fatalf("%v", all)
	}
	_, err = f.Templates.BuildTemplate(f.ctx, bothy.TemplateBuild{Name: "bad"}, func(bothy.BuildEvent) {})
	wantCode(t, err, bothy.CodeTemplateInvalid)
	f.must(f.Templates.RemoveTemplate(f.ctx, "mine"))
	_, err = f.Templates.Template(f.ctx, "mine")
	wantCode(t, err, bothy.CodeTemplateNotFound)
}

func TestTokens(t *testing.T) {
	f := start(t)
	_, err := f.Tokens.Tokens(f.ctx)
	wantCode(t, err, bothy.CodeForbidden)
	admin := client.New(f.url, apitest.Admin)
	at := apitest.Epoch.Add(time.Hour)
	req := bothy.TokenCreate{Name: "ci", Scopes: []bothy.Scope{bothy.ScopeSandboxesRead}, ExpiresAt: &at}
	if h, err := admin.Host.Host(f.ctx); err != nil || h.CPUs != 2 || len(h.Findings) != 1 {
		t.Errorf("%+v, %v", h, err)
	}
	k, err := admin.Tokens.CreateToken(f.ctx, req)
	f.must(err)
	if d := cmp.Diff(req, f.tokens.Created); d != "" {
		t.Fatal(d)
	}
	made := client.New(f.url, k.Key)
	_, err = made.Sandboxes.List(f.ctx, bothy.SandboxFilter{})
	f.must(err)
	all, err := admin.Tokens.Tokens(f.ctx)
	f.must(err)
	if len(all) != 1 || all[0].Key != "" {
		t.Fatalf("%+v", all)
	}
	f.must(admin.Tokens.DeleteToken(f.ctx, k.ID))
	_, err = made.Sandboxes.List(f.ctx, bothy.SandboxFilter{})
	wantCode(t, err, bothy.CodeUnauthenticated)
}

func TestEventsAndNetwork(t *testing.T) {
	f := start(t)
	id := f.create()
	var types []string
	enough := errors.New("enough")
	collect := func(e bothy.Event) error {
		types = append(types, e.Type)
		if len(types) == 1 {
			return nil
		}
		return enough
	}
	f.must(f.Events.Events(f.ctx, bothy.EventFilter{}, collect))
	f.must(f.Sandboxes.Terminate(f.ctx, id))
	if err := f.Events.Events(f.ctx, bothy.EventFilter{Since: 1, Follow: true}, collect); !errors.Is(err, enough) {
		t.Fatal(err)
	}
	if strings.Join(types, " ") != "sandbox.created sandbox.ended" {
		t.Fatalf("%v", types)
	}
	var log []bothy.NetworkDecision
	add := func(d bothy.NetworkDecision) error { log = append(log, d); return nil }
	f.must(f.Network.NetworkLog(f.ctx, id, time.Time{}, false, add))
	f.must(f.Network.NetworkLog(f.ctx, id, apitest.Epoch.Add(time.Second), false, add))
	if len(log) != 3 || log[0].Name != "a.example.com" || log[2].Port != 25 {
		t.Fatalf("%+v", log)
	}
}

func TestDoPrintsWhatTheServerWrote(t *testing.T) {
	f := start(t)
	id := f.create()
	raw, err := f.Do(f.ctx, "GET", "/v1/sandboxes/"+id, nil)
	f.must(err)
	r, err := http.NewRequest("GET", f.url+"/v1/sandboxes/"+id, nil)
	f.must(err)
	r.Header.Set("Authorization", "Bearer "+apitest.Writer)
	res, err := http.DefaultClient.Do(r)
	f.must(err)
	defer res.Body.Close()
	want, err := io.ReadAll(res.Body)
	f.must(err)
	if string(raw) != string(bytes.TrimSpace(want)) {
		t.Fatalf("got  %s\nwant %s", raw, want)
	}
	if raw, err := f.Do(f.ctx, "DELETE", "/v1/sandboxes/"+id, nil); err != nil || raw != nil {
		t.Fatalf("%s, %v", raw, err)
	}
	raw, err = f.Do(f.ctx, "POST", "/v1/sandboxes", bothy.SandboxCreate{Name: "x"})
	f.must(err)
	if !strings.Contains(string(raw), `"name":"x"`) {
		t.Fatalf("%s", raw)
	}
	var events []string
	f.must(f.Stream(f.ctx, "POST", "/v1/sandboxes/"+id+"/exec", bothy.ExecRequest{Command: bothy.Command{Line: "echo <&>"}}, func(raw json.RawMessage) error {
		events = append(events, string(raw))
		return nil
	}))
	if events[0] != `{"stream":"stdout","data":"<&>\n","offset":0}` {
		t.Fatalf("%q", events)
	}
	f.must(f.Health(f.ctx))
}

func TestIdempotencyKey(t *testing.T) {
	f := start(t)
	ctx := client.WithIdempotencyKey(f.ctx, "k1")
	first, err := f.Sandboxes.Create(ctx, bothy.SandboxCreate{})
	f.must(err)
	again, err := f.Sandboxes.Create(ctx, bothy.SandboxCreate{})
	f.must(err)
	if first.ID != again.ID {
		t.Fatalf("two sandboxes: %s, %s", first.ID, again.ID)
	}
	_, err = f.Sandboxes.Create(ctx, bothy.SandboxCreate{Name: "other"})
	wantCode(t, err, bothy.CodeIdempotency)
}

func TestNoServer(t *testing.T) {
	address := freeport.ForTest(t)
	c := client.New("http://"+address, "key")
	_, err := c.Sandboxes.Get(t.Context(), "x")
	e := wantCode(t, err, client.CodeUnreachable)
	if !strings.Contains(e.Hint, "bothy up") || !strings.Contains(e.Detail, address) {
		t.Errorf("%+v", e)
	}
	_, err = c.Exec.Terminal(t.Context(), "x", bothy.TerminalRequest{})
	wantCode(t, err, client.CodeUnreachable)
	for _, bad := range []string{"", "127.0.0.1", "::", "http://%zz"} {
		_, err := client.New(bad, "").Sandboxes.Get(t.Context(), "x")
		wantCode(t, err, bothy.CodeInvalid)
	}
}

// A server that is not Bothy must be recognized as such.
func TestStrangeServer(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"html error": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) },
		"html":       func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
	} {
		s := httptest.NewServer(h)
		_, err := client.New(s.URL, "").Sandboxes.Get(t.Context(), "x")
		if wantCode(t, err, bothy.CodeInternal); t.Failed() {
			t.Log(name)
		}
		s.Close()
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(429)
		_, _ = io.WriteString(w, `{"status":429,"code":"rate_limited","detail":"d","hint":"h"}`)
	}))
	defer s.Close()
	_, err := client.New(s.URL, "").Sandboxes.Get(t.Context(), "x")
	if e := wantCode(t, err, bothy.CodeRateLimited); e.RetryAfter != 3*time.Second {
		t.Errorf("%+v", e)
	}
}

func TestCredentials(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("BOTHY_URL", "")
	t.Setenv("BOTHY_API_KEY", "")
	_, err := client.LoadCredentials()
	if e := wantCode(t, err, bothy.CodeUnauthenticated); !strings.Contains(e.Hint, "bothy up") {
		t.Errorf("%+v", e)
	}
	want := client.Credentials{URL: "http://127.0.0.1:1", APIKey: "k1"}
	for range 2 {
		if err := client.SaveCredentials(want); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(home, ".config", "bothy", "credentials.json")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".cred*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, c := range []struct{ url, key, wantURL, wantKey string }{
		{"", "", want.URL, want.APIKey},
		{want.URL + "/", "", want.URL + "/", want.APIKey},
		{"", "k2", want.URL, "k2"},
		{"http://x", "k2", "http://x", "k2"},
	} {
		t.Setenv("BOTHY_URL", c.url)
		t.Setenv("BOTHY_API_KEY", c.key)
		got, err := client.LoadCredentials()
		if err != nil || got.URL != c.wantURL || got.APIKey != c.wantKey {
			t.Errorf("%+v gives %+v, %v", c, got, err)
		}
	}
	t.Setenv("BOTHY_URL", "http://x")
	t.Setenv("BOTHY_API_KEY", "")
	if c, err := client.LoadCredentials(); bothy.ErrorCode(err) != bothy.CodeUnauthenticated || c.APIKey != "" {
		t.Errorf("one server's key is given to another: %+v, %v", c, err)
	}
	t.Setenv("BOTHY_URL", "")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = client.LoadCredentials()
	wantCode(t, err, bothy.CodeInvalid)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BOTHY_API_KEY", "k")
	if got, err := client.LoadCredentials(); err != nil || got.URL != client.DefaultURL {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSnapshotsTravel(t *testing.T) {
	f := start(t)
	sb := f.create()
	n, err := f.Snapshots.CreateSnapshot(f.ctx, sb, bothy.SnapshotCreate{Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := f.Mover.ExportSnapshot(f.ctx, n.ID, "hush", &b); err != nil || b.String() != n.ID+" hush" {
		t.Errorf("exported %q, %v", b.String(), err)
	}
	in, err := f.Mover.ImportSnapshot(f.ctx, "new-", "", strings.NewReader("archive"))
	if err != nil || in.Name != "new-archive" {
		t.Errorf("imported %+v, %v", in, err)
	}
	if logs, err := f.Logs.Logs(f.ctx, sb, 0); err != nil || len(logs.Items) != 1 {
		t.Errorf("logs %+v, %v", logs, err)
	}
	if l, err := f.Limits.Limits(f.ctx); err != nil || l.Sandboxes.Used != 1 {
		t.Errorf("limits %+v, %v", l, err)
	}
}

func TestCredentialsAreWhereTheEnvironmentSays(t *testing.T) {
	home, xdg := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	inHome, inXDG := filepath.Join(home, ".config/bothy/credentials.json"), filepath.Join(xdg, "bothy/credentials.json")
	at := func(want string) {
		t.Helper()
		if got, err := client.CredentialsPath(); err != nil || got != want {
			t.Errorf("credentials are in %s, %v; want %s", got, err, want)
		}
	}
	t.Setenv("XDG_CONFIG_HOME", "")
	at(inHome)
	t.Setenv("XDG_CONFIG_HOME", "relative")
	at(inHome)
	t.Setenv("XDG_CONFIG_HOME", xdg)
	at(inXDG)
	// A file of another server in ~/.config does not overrule the variable.
	if err := os.MkdirAll(filepath.Dir(inHome), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(inHome, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	at(inXDG)
}
