package build

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// The program of a sandbox is ready when it was asked so often.
const readyAt = 3

func (w *world) isReady(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.boxes[id]
	b.asked++
	return b.asked >= readyAt && b.program.Command.Args[2] != "idle"
}

// Exec implements Sandboxes: it starts a program, or asks whether it is ready.
func (w *world) Exec(_ context.Context, id string, req bothy.ExecRequest) (*bothy.ExecResult, error) {
	if req.Background {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.boxes[id].program = req
		return &bothy.ExecResult{PID: 7}, nil
	}
	if w.isReady(id) && req.Command.Args[2] == "ready?" {
		return &bothy.ExecResult{}, nil
	}
	return &bothy.ExecResult{ExitCode: 1}, nil
}

// Processes implements Sandboxes.
func (w *world) Processes(_ context.Context, id string) ([]bothy.ProcessInfo, error) {
	codes := map[string]int{"fail": 3, "daemon": 0}
	p := bothy.ProcessInfo{PID: 7, Running: true}
	if code, ended := codes[w.box(id).program.Command.Args[2]]; ended {
		p.Running, p.ExitCode = false, &code
	}
	return []bothy.ProcessInfo{{PID: 1, Running: true}, p}, nil
}

// Output implements Sandboxes.
func (w *world) Output(_ context.Context, _ string, _ int, _ int64, fn func(bothy.ExecEvent) error) error {
	return fn(bothy.ExecEvent{Stream: "stdout", Data: "what it said"})
}

// DialPort implements Sandboxes.
func (w *world) DialPort(_ context.Context, id string, port uint16) (net.Conn, error) {
	if !w.isReady(id) || port != 8000 {
		return nil, errors.New("nothing listens")
	}
	here, _ := net.Pipe()
	return here, nil
}

// FetchPort implements Sandboxes.
func (w *world) FetchPort(req *http.Request, id string, port uint16) (*http.Response, error) {
	status := http.StatusServiceUnavailable
	if w.isReady(id) && port == 8000 && req.URL.Path == "/health" {
		status = http.StatusNoContent
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(""))}, nil
}

// Stat is that of the fake files.
func (f boxFiles) Stat(_ context.Context, id, path, _ string) (*bothy.FileInfo, error) {
	if !f.w.isReady(id) || path != "/run/ready" {
		return nil, bothy.Errorf(bothy.CodeFileNotFound, "there is no %s", path)
	}
	return &bothy.FileInfo{}, nil
}

// CreateTemplate implements Sandboxes.
func (w *world) CreateTemplate(ctx context.Context, id string, req bothy.TemplateCapture) (*bothy.Template, error) {
	if !req.Memory {
		return nil, errors.New("without the program")
	}
	b := w.box(id)
	t := &store.Template{Template: bothy.Template{Version: bothy.ManifestVersion, Name: req.Name, Memory: &bothy.TemplateMemory{SnapshotID: "snp1", MemoryMB: b.req.MemoryMB}}}
	return &t.Template, w.library.Adopt(ctx, t, b.image)
}

func TestProgramsThatRunAlready(t *testing.T) {
	for name, start := range map[string]bothy.TemplateStart{
		"at once":   {Command: "serve"},
		"port":      {Command: "serve", Ready: &bothy.TemplateReady{Port: 8000}},
		"url":       {Command: "serve", Ready: &bothy.TemplateReady{URL: "http://localhost:8000/health"}},
		"file":      {Command: "serve", Ready: &bothy.TemplateReady{File: "/run/ready"}},
		"command":   {Command: "serve", Ready: &bothy.TemplateReady{Command: "ready?"}},
		"a daemon":  {Command: "daemon", Ready: &bothy.TemplateReady{Port: 8000}},
		"of a user": {Command: "serve", User: "app", Cwd: "/srv", CPU: 2, MemoryMB: 256, DiskMB: 512, TimeoutSeconds: 5},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := w.build(bothy.BuildRequest{Dockerfile: "FROM base\nRUN write /a 1", Start: &start})
			if r.State != bothy.BuildSucceeded || r.template.Memory == nil || w.left() != 0 {
				t.Fatalf("%+v, %s", r.Build, r.log)
			}
			if tags := tagsOf(t, w); !slices.Equal(tags, []string{"base", "made"}) {
				t.Errorf("there is %q", tags)
			}
			b := w.box("sbx1")
			got := b.program
			if got.User != start.User || got.Cwd != start.Cwd || b.req.CPU != start.CPU || b.req.MemoryMB != start.MemoryMB || b.req.DiskMB != start.DiskMB {
				t.Errorf("it ran %+v in %+v", got, b.req)
			}
			if start.Ready != nil && b.asked != readyAt {
				t.Errorf("it was asked %d times", b.asked)
			}
		})
	}
}

// tagsOf lists what a world's library has.
func tagsOf(t *testing.T, w *world) (tags []string) {
	t.Helper()
	list, err := w.library.Templates(w.me())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range list {
		tags = append(tags, one.Ref())
	}
	return tags
}

func TestProgramsThatDoNotComeUp(t *testing.T) {
	for name, c := range map[string]struct {
		start bothy.TemplateStart
		want  string
		hint  string
	}{
		"failed": {bothy.TemplateStart{Command: "fail", Ready: &bothy.TemplateReady{Port: 8000}}, "ended with exit code 3: fail", ""},
		"idle":   {bothy.TemplateStart{Command: "idle", Ready: &bothy.TemplateReady{Port: 8000}, TimeoutSeconds: 90}, "was not ready within 90 seconds: idle", "listens on port 8000"},
		"never":  {bothy.TemplateStart{Command: "idle", Ready: &bothy.TemplateReady{Command: "ready?"}}, "was not ready within 60 seconds: idle", `the command "ready?" succeeds`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				r := w.build(bothy.BuildRequest{Dockerfile: "FROM base", Start: &c.start})
				if r.State != bothy.BuildFailed || r.Code != bothy.CodeTemplateInvalid || !strings.Contains(r.Error, c.want) || r.Hint == "" || !strings.Contains(r.Hint, c.hint) || w.left() != 0 {
					t.Errorf("%+v", r.Build)
				}
				if !strings.Contains(r.log, "what it said") {
					t.Errorf("the log is %s", r.log)
				}
				if tags := tagsOf(t, w); !slices.Equal(tags, []string{"base"}) {
					t.Errorf("there is %q", tags)
				}
				w.Close()
			})
		})
	}
}

func TestStartsThatCannotBe(t *testing.T) {
	w := newWorld(t)
	for want, start := range map[string]bothy.TemplateStart{
		"no command":       {Ready: &bothy.TemplateReady{Port: 1}},
		"timeout_seconds":  {Command: "a", TimeoutSeconds: 4000},
		"has 0 conditions": {Command: "a", Ready: &bothy.TemplateReady{}},
		"has 2 conditions": {Command: "a", Ready: &bothy.TemplateReady{Port: 1, File: "/x"}},
		"ready.file":       {Command: "a", Ready: &bothy.TemplateReady{File: "x"}},
		"ready.port":       {Command: "a", Ready: &bothy.TemplateReady{Port: bothy.GuestPort}},
		"example.org":      {Command: "a", Ready: &bothy.TemplateReady{URL: "http://example.org/"}},
		"https://":         {Command: "a", Ready: &bothy.TemplateReady{URL: "https://localhost/"}},
		"has the port":     {Command: "a", Ready: &bothy.TemplateReady{URL: "http://localhost:99999/"}},
	} {
		_, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "made", Dockerfile: "FROM base", Start: &start})
		if bothy.ErrorCode(err) != bothy.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
