package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/problem"
	"github.com/bothy-dev/bothy/api/rest"
)

// Errors of services are returned to the caller with the status of their code.
func TestEveryCodeTravels(t *testing.T) {
	f := start(t)
	for code := range problem.Statuses {
		e := bothy.Errorf(code, "the value %q is bad", "<x>").WithHint("Do <y>.").Because(errors.New("internal matter"))
		e.Op, e.RetryAfter = "op", 1500*time.Millisecond
		f.world.Fail(fmt.Errorf("wrapped: %w", e))
		res := f.do("POST", "/v1/sandboxes", nil)
		p := f.failed(code, res)
		if p.Detail != `the value "<x>" is bad` || p.Hint != "Do <y>." || res.Header.Get("Retry-After") != "2" {
			t.Errorf("%+v, Retry-After %q", p, res.Header.Get("Retry-After"))
		}
		if strings.Contains(res.body, "internal matter") {
			t.Errorf("the cause is shown: %s", res.body)
		}
		if !strings.Contains(res.body, "<x>") {
			t.Errorf("the detail is mangled: %s", res.body)
		}
	}
	if !strings.Contains(f.logged.String(), "internal matter") {
		t.Error("the cause of a failure is not logged")
	}
}

func TestOtherErrorsAreHidden(t *testing.T) {
	f := start(t)
	f.world.Fail(errors.New("disk sda1 is on fire"))
	res := f.do("GET", "/v1/sandboxes", nil, header{"X-Request-Id": "my-id.7"})
	p := f.failed(bothy.CodeInternal, res)
	if strings.Contains(res.body, "fire") || p.Hint == "" {
		t.Errorf("%s", res.body)
	}
	if res.Header.Get("X-Request-Id") != "my-id.7" {
		t.Errorf("request id %q", res.Header.Get("X-Request-Id"))
	}
	if log := f.logged.String(); !strings.Contains(log, "fire") || !strings.Contains(log, "my-id.7") {
		t.Errorf("log: %s", log)
	}
	f.world.Fail(fmt.Errorf("x: %w", context.DeadlineExceeded))
	f.failed(bothy.CodeTimeout, f.do("GET", "/v1/sandboxes", nil))
}

func TestRequestID(t *testing.T) {
	f := start(t)
	seen := map[string]bool{}
	for _, given := range []string{"", "", "has space", "<script>", strings.Repeat("x", 129)} {
		id := f.do("GET", "/healthz", nil, header{"X-Request-Id": given}).Header.Get("X-Request-Id")
		if id == given || seen[id] || !regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`).MatchString(id) {
			t.Errorf("%q gives the id %q", given, id)
		}
		seen[id] = true
	}
}

func TestMalformedRequests(t *testing.T) {
	f := start(t)
	path := f.create()
	huge := `{"name":"` + strings.Repeat("x", middleware.MaxJSONBytes) + `"}`
	for _, c := range []struct {
		name, method, path, body string
		code                     bothy.Code
		says                     string // in the detail
		advises                  string // in the hint
	}{
		{"not JSON", "POST", "/v1/sandboxes", `{"cpu":`, bothy.CodeInvalid, "body", ""},
		{"two values", "POST", "/v1/sandboxes", `{} {}`, bothy.CodeInvalid, "body", ""},
		{"an array", "POST", "/v1/sandboxes", `[]`, bothy.CodeInvalid, "object", ""},
		{"a string", "POST", "/v1/sandboxes", `"x"`, bothy.CodeInvalid, "object", ""},
		{"wrong type", "POST", "/v1/sandboxes", `{"cpu":"many"}`, bothy.CodeInvalid, `cpu: expected number, not "many"`, ""},
		{"fraction", "POST", "/v1/sandboxes", `{"memory_mb":1.5}`, bothy.CodeInvalid, "memory_mb", ""},
		{"too much CPU", "POST", "/v1/sandboxes", `{"cpu":5}`, bothy.CodeInvalid, "cpu: expected number <= 4, not 5", ""},
		{"no CPU", "POST", "/v1/sandboxes", `{"cpu":0}`, bothy.CodeInvalid, "cpu", ""},
		{"too much memory", "POST", "/v1/sandboxes", `{"memory_mb":8193}`, bothy.CodeInvalid, "8192", ""},
		{"negative time", "POST", "/v1/sandboxes", `{"timeout_seconds":-1}`, bothy.CodeInvalid, "timeout_seconds", ""},
		{"unknown size", "POST", "/v1/sandboxes", `{"size":"huge"}`, bothy.CodeInvalid, "small, medium, large", ""},
		{"unknown end", "POST", "/v1/sandboxes", `{"on_timeout":"explode"}`, bothy.CodeInvalid, "terminate, pause", ""},
		{"unknown field", "POST", "/v1/sandboxes", `{"memory":5}`, bothy.CodeInvalid, "memory: unexpected property", "memory_mb"},
		{"wrong case", "POST", "/v1/sandboxes", `{"CPU":1}`, bothy.CodeInvalid, "CPU", "cpu"},
		{"bad range", "POST", "/v1/sandboxes", `{"network":{"allow_cidrs":["192.0.2.0/24","10.0.0.0/99"]}}`, bothy.CodeInvalid, `"10.0.0.0/99", which is not a range of addresses`, ""},
		{"unknown mode", "POST", "/v1/sandboxes", `{"network":"some"}`, bothy.CodeInvalid, `"some" is not one of off, restricted, open`, ""},
		{"misspelt rule", "POST", "/v1/sandboxes", `{"network":{"allow_domain":["x"]}}`, bothy.CodeInvalid, "allow_domain", ""},
		{"bad range", "POST", "/v1/sandboxes", `{"network":{"allow_cidrs":["1.2.3"]}}`, bothy.CodeInvalid, "1.2.3", ""},
		{"secret of the wrong type", "POST", "/v1/sandboxes", `{"secrets":[{"name":"n","value":7,"hosts":[]}]}`, bothy.CodeInvalid, "secrets[0].value", ""},
		{"metadata of the wrong type", "POST", "/v1/sandboxes", `{"metadata":{"a":1}}`, bothy.CodeInvalid, "metadata.a", ""},
		{"a large number", "POST", "/v1/sandboxes", `{"memory_mb":99999999}`, bothy.CodeInvalid, "memory_mb: expected number <= 8192, not 99999999", ""},
		{"many faults", "POST", "/v1/sandboxes", `{"a":1,"b":1,"c":1,"d":1,"e":1}`, bothy.CodeInvalid, "and 2 more", ""},
		{"too large", "POST", "/v1/sandboxes", huge, bothy.CodeTooLarge, "16 MiB", "PUT"},
		{"no body", "POST", path + "/exec", "", bothy.CodeInvalid, "body is required", ""},
		{"no command", "POST", path + "/exec", `{}`, bothy.CodeInvalid, "command", ""},
		{"command of the wrong type", "POST", path + "/exec", `{"command":7}`, bothy.CodeInvalid, "string or an array", ""},
		{"no body to change", "PATCH", path, "", bothy.CodeInvalid, "body", ""},
		{"unknown query", "GET", "/v1/sandboxes?stat=running", "", bothy.CodeInvalid, "stat: unknown", ""},
		{"unknown query elsewhere", "GET", path + "?x=1", "", bothy.CodeInvalid, "x: unknown", ""},
		{"unknown state", "GET", "/v1/sandboxes?state=asleep", "", bothy.CodeInvalid,
			`one of "starting, running, pausing, paused, resuming, stopping, stopped, failed", not "asleep"`, ""},
		{"limit", "GET", "/v1/sandboxes?limit=0", "", bothy.CodeInvalid, "limit", ""},
		{"limit in words", "GET", "/v1/sandboxes?limit=ten", "", bothy.CodeInvalid, `invalid integer, not "ten"`, ""},
		{"pid in words", "GET", path + "/processes/init/output", "", bothy.CodeInvalid, "pid", ""},
		{"no path", "GET", path + "/files", "", bothy.CodeInvalid, "path", ""},
		{"bad mode", "PUT", path + "/files?path=x&mode=rwx", "", bothy.CodeInvalid, "mode", ""},
		{"bad time", "PUT", path + "/files?path=x&modified_at=yesterday", "", bothy.CodeInvalid, "modified_at", ""},
		{"bad base64", "POST", path + "/files", `{"path":"x","content":"!","encoding":"base64"}`, bothy.CodeInvalid, "base64", ""},
		{"unknown encoding", "POST", path + "/files", `{"path":"x","content":"!","encoding":"rot13"}`, bothy.CodeInvalid, "encoding", ""},
		{"unknown signal", "POST", path + "/processes/1/signal", `{"signal":"SIGNAL"}`, bothy.CodeInvalid, "SIGTERM", ""},
		{"signal number", "POST", path + "/processes/1/signal", `{"signal":0}`, bothy.CodeInvalid, "1 to 64", ""},
		{"too many copies", "POST", path + "/fork", `{"count":101}`, bothy.CodeInvalid, "count", ""},
		{"no snapshot", "POST", path + "/rollback", `{}`, bothy.CodeInvalid, "snapshot_id", ""},
		{"since in words", "GET", "/v1/events?since=now", "", bothy.CodeInvalid, "since", ""},
		{"nowhere", "GET", "/v1/sandbox", "", bothy.CodeNotFound, "/v1/sandbox", "/docs"},
		{"no id", "GET", "/v1/sandboxes/", "", bothy.CodeNotFound, "/v1/sandboxes/", ""},
		{"options", "OPTIONS", "/v1/sandboxes", "", bothy.CodeMethodNotAllowed, "OPTIONS", "GET or POST"},
		{"outside", "GET", "/", "", bothy.CodeNotFound, "/", ""},
		{"wrong method", "PUT", "/v1/sandboxes", "{}", bothy.CodeMethodNotAllowed, "PUT", "GET or POST"},
		{"no such sandbox", "GET", "/v1/sandboxes/sbx-none", "", bothy.CodeSandboxNotFound, "sbx-none", "bothy ls"},
		{"a path for an id", "GET", "/v1/sandboxes/..%2F..%2Fetc", "", bothy.CodeSandboxNotFound, "etc", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := *f
			f.T = t
			var body any
			if c.body != "" {
				body = c.body
			}
			p := f.failed(c.code, f.do(c.method, c.path, body))
			if !strings.Contains(p.Detail, c.says) || !strings.Contains(p.Hint, c.advises) {
				t.Errorf("detail %q, hint %q", p.Detail, p.Hint)
			}
			if p.Hint == "" {
				t.Error("no hint")
			}
		})
	}
}

func TestContentType(t *testing.T) {
	f := start(t)
	for _, ct := range []string{"text/plain", "application/x-www-form-urlencoded", "application/xml"} {
		f.failed(bothy.CodeMediaType, f.do("POST", "/v1/sandboxes", `{}`, header{"Content-Type": ct}))
	}
	for _, ct := range []string{"application/json; charset=utf-8", "application/json"} {
		f.ok(201, f.do("POST", "/v1/sandboxes", `{}`, header{"Content-Type": ct}))
	}
}

func TestSecretsAreNotRepeated(t *testing.T) {
	f := start(t)
	res := f.do("POST", "/v1/sandboxes", `{"secrets":[{"name":"n","value":"hunter2","hosts":"x","extra":"hunter3"}]}`)
	f.failed(bothy.CodeInvalid, res)
	if strings.Contains(res.body, "hunter") || strings.Contains(f.logged.String(), "hunter") {
		t.Errorf("%s\n%s", res.body, f.logged)
	}
}

// A body of unknown length is limited as well.
func TestChunkedBodyIsBounded(t *testing.T) {
	f := start(t)
	body := struct{ *bytes.Reader }{bytes.NewReader(bytes.Repeat([]byte(" "), middleware.MaxJSONBytes+1))}
	f.failed(bothy.CodeTooLarge, f.do("POST", "/v1/sandboxes", body))
}

func TestPanic(t *testing.T) {
	f := start(t)
	res := f.do("POST", f.create()+"/exec", `{"command":"panic"}`)
	p := f.failed(bothy.CodeInternal, res)
	if p.Hint == "" {
		t.Error("no hint")
	}
	log := f.logged.String()
	if !strings.Contains(log, "told to panic") || !strings.Contains(log, res.Header.Get("X-Request-Id")) || !strings.Contains(log, "exec.go") {
		t.Errorf("log: %s", log)
	}
	f.ok(200, f.do("GET", "/healthz", nil))
}

func TestHostHeader(t *testing.T) {
	f := start(t, func(s *setup) { s.config.AllowedHosts = []string{"bothy.example.com", "*.example.org"} })
	port := f.Addr().String()[strings.LastIndex(f.Addr().String(), ":"):]
	for host, allowed := range map[string]bool{
		"127.0.0.1" + port: true, "localhost" + port: true, "LOCALHOST": true, "[::1]" + port: true, "localhost.": true,
		"bothy.example.com": true, "a.example.org": true, "a.b.example.org:80": true,
		"example.org": false, "evil.example.com": false, "127.0.0.1.evil.test": false, "localhost.evil.test": false, "10.0.0.1": false, "": true,
	} {
		res := f.do("GET", "/v1/sandboxes", nil, header{"Host": host})
		if allowed {
			f.ok(200, res)
		} else if p := f.failed(bothy.CodeMisdirected, res); p.Hint == "" {
			t.Error("no hint")
		}
	}
}

func TestHostIsNotCheckedElsewhere(t *testing.T) {
	s := New(Services{Services: rest.Services{Tokens: apitest.NewTokens()}}, Config{Listen: ":0"})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.chain.Hosts.Check("anything.example.com"); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(s.URL(), "http://127.0.0.1:") {
		t.Errorf("URL %s", s.URL())
	}
}

func TestAddressInUse(t *testing.T) {
	f := start(t)
	err := New(Services{Services: rest.Services{Tokens: apitest.NewTokens()}}, Config{Listen: f.Addr().String()}).Listen()
	if e := bothy.AsError(err); e.Code != bothy.CodeConflict || !strings.Contains(e.Hint, "--listen") {
		t.Errorf("%+v", e)
	}
}

// A frozen host answers health checks with 503 and the reason, so that it gets no requests.
func TestAFrozenHostIsNotHealthy(t *testing.T) {
	var why atomic.Value
	why.Store("")
	f := start(t, func(s *setup) {
		s.config.Frozen = func() string { return why.Load().(string) }
		s.config.Problems = func() []string { return []string{"the disk is full"} }
	}).as("")
	for _, c := range []struct {
		why  string
		code int
		want string
	}{
		{"", 200, `{"status":"degraded","version":"test","problems":["the disk is full"]}`},
		{"no lease", 503, `{"status":"frozen","version":"test","problems":["no lease","the disk is full"]}`},
		{"", 200, `{"status":"degraded","version":"test","problems":["the disk is full"]}`},
	} {
		why.Store(c.why)
		if res := f.ok(c.code, f.do("GET", "/healthz", nil)); strings.TrimSpace(res.body) != c.want {
			t.Errorf("%q: %s", c.why, res.body)
		}
	}
}

func TestHealthNeedsNoKey(t *testing.T) {
	f := start(t).as("")
	if res := f.ok(http.StatusOK, f.do("GET", "/healthz", nil)); strings.TrimSpace(res.body) != `{"status":"ok","version":"test"}` {
		t.Errorf("%s", res.body)
	}
}

// A failure that passes says when to try again, even if what failed does not know.
func TestPassingFailuresSayWhenToRetry(t *testing.T) {
	for code, status := range problem.Statuses {
		got := problem.Of(bothy.Errorf(code, "x")).GetHeaders().Get("Retry-After")
		passes := status == http.StatusServiceUnavailable && code != bothy.CodeEngineMissing || code == bothy.CodeMisdirected
		if passes != (got != "") {
			t.Errorf("%s: Retry-After %q", code, got)
		}
	}
}

// What the server itself cancels is logged as its failure, and not as a caller that left.
func TestWhatTheServerCancelsIsLogged(t *testing.T) {
	f := start(t)
	f.Handle("GET /cancelled", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.Fail(w, r, fmt.Errorf("the background work: %w", context.Canceled))
	}))
	if res := f.do("GET", "/cancelled", nil); res.StatusCode != 500 {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(f.logged.String(), "the background work"); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("the log is %s", f.logged)
		}
	}
	if !strings.Contains(f.logged.String(), `"status":500`) {
		t.Errorf("the log is %s", f.logged)
	}
}
