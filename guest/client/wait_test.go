package client_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// long is a time that no test waits for.
const long = 300

func TestWait(t *testing.T) {
	g := adopted(t)
	spawn := func(command string) int {
		t.Helper()
		req := line(command)
		req.Background, req.Stdin = true, ""
		res, err := g.Exec(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return res.PID
	}
	wait := func(req bothy.WaitRequest) bothy.WaitResult {
		t.Helper()
		if req.TimeoutSeconds == 0 {
			req.TimeoutSeconds = long
		}
		res, err := g.Wait(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return *res
	}
	// later waits in parallel with what makes it succeed, however the two meet.
	later := func(req bothy.WaitRequest, then func()) bothy.WaitResult {
		t.Helper()
		req.TimeoutSeconds = long
		var res *bothy.WaitResult
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			res, err = g.Wait(t.Context(), req)
		}()
		then()
		if <-done; err != nil {
			t.Fatal(err)
		}
		return *res
	}
	tell := func(pid int, text string) {
		if err := g.Stdin(t.Context(), pid, []byte(text), false); err != nil {
			t.Error(err)
		}
	}

	open, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	const closed = 1 // nothing listens there
	if got := wait(bothy.WaitRequest{Port: open.Addr().(*net.TCPAddr).Port}); got.TimedOut {
		t.Errorf("a port: %+v", got)
	}
	if got := wait(bothy.WaitRequest{Port: closed, TimeoutSeconds: 0.05}); !got.TimedOut {
		t.Errorf("a closed port: %+v", got)
	}

	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(strings.Trim(r.URL.Path, "/"))
		w.WriteHeader(code)
	}))
	defer web.Close()
	for _, c := range []struct {
		path           string
		status, answer int
		timeout        float64
	}{{"/204", 0, 204, 0}, {"/302", 0, 302, 0}, {"/503", 503, 503, 0}, {"/503", 0, 0, 0.05}, {"/200", 201, 0, 0.05}} {
		got := wait(bothy.WaitRequest{URL: web.URL + c.path, Status: c.status, TimeoutSeconds: c.timeout})
		if got.Status != c.answer || got.TimedOut != (c.answer == 0) {
			t.Errorf("%s with %d: %+v", c.path, c.status, got)
		}
	}

	cat := spawn("while read line; do echo \"$line\"; done; printf 'the rest' >&2; exit 7")
	got := later(bothy.WaitRequest{Log: "ready", PID: cat}, func() { tell(cat, "one\nit is ready now\n") })
	if got.Line != "it is ready now" {
		t.Errorf("a line: %+v", got)
	}
	if got := wait(bothy.WaitRequest{Log: "^it .* now$", Regex: true, PID: cat}); got.Line != "it is ready now" {
		t.Errorf("a line that is there: %+v", got)
	}
	got = wait(bothy.WaitRequest{Log: "xy", PID: spawn(`head -c 200000 /dev/zero | tr '\0' x; echo y`)})
	if len(got.Line) == 0 || len(got.Line) > 3000 {
		t.Errorf("a long line has %d bytes", len(got.Line))
	}
	got = later(bothy.WaitRequest{Log: "the rest", PID: cat}, func() {
		if err := g.Stdin(t.Context(), cat, nil, true); err != nil {
			t.Error(err)
		}
	})
	if got.Line != "the rest" {
		t.Errorf("a line without its end: %+v", got)
	}
	if got := wait(bothy.WaitRequest{PID: cat}); got.ExitCode == nil || *got.ExitCode != 7 {
		t.Errorf("the end: %+v", got)
	}
	for _, req := range []bothy.WaitRequest{{Log: "never", PID: cat}, {Port: closed, PID: cat}, {URL: web.URL + "/500", PID: cat}} {
		req.TimeoutSeconds = 300
		_, err := g.Wait(t.Context(), req)
		wantCode(t, err, bothy.CodeConflict)
		if err != nil && !strings.Contains(err.Error(), "exit code 7") {
			t.Errorf("%+v: %v", req, err)
		}
	}
	_, err = g.Wait(t.Context(), bothy.WaitRequest{PID: 1 << 22, TimeoutSeconds: 300})
	wantCode(t, err, bothy.CodeProcessNotFound)

	name := filepath.Join(g.dir, "app.log")
	write := func(text string) func() {
		return func() {
			f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			if err == nil {
				_, err = f.WriteString(text)
				f.Close()
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
	for _, text := range []string{"started", "moved"} {
		got := later(bothy.WaitRequest{Log: text, Path: "app.log"}, write("it was "+text+"\r\nmore"))
		if !strings.HasSuffix(got.Line, "it was "+text) {
			t.Errorf("a file's line: %+v", got)
		}
		if err := os.Rename(name, name+".1"); err != nil {
			t.Fatal(err)
		}
	}
	write("longer than what comes next\n")()
	got = later(bothy.WaitRequest{Log: "replaced", Path: name}, func() {
		if err := os.Truncate(name, 0); err != nil {
			t.Error(err)
		}
		write("replaced\n")()
	})
	if got.Line != "replaced" {
		t.Errorf("a file that was emptied: %+v", got)
	}
	_, err = g.Wait(t.Context(), bothy.WaitRequest{Log: "x", Path: g.dir, TimeoutSeconds: 300})
	wantCode(t, err, bothy.CodeIsADirectory)
}
