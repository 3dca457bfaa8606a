package openai

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// TestRoutes mounts all calls: the mux refuses those that it could not tell apart.
func TestRoutes(t *testing.T) {
	mux := http.NewServeMux()
	for _, r := range New(Services{}, "").Routes() {
		if !strings.HasPrefix(r.ID, "openai:") || r.Scope == "" {
			t.Errorf("%s has no id or scope", r.Pattern)
		}
		mux.HandleFunc(r.Pattern, func(http.ResponseWriter, *http.Request) {})
	}
}

func TestFileIDs(t *testing.T) {
	for _, path := range []string{"/mnt/data/a.txt", "/mnt/data/ä b/c\n.bin", "/mnt/data/.." + "x"} {
		f := ref{"sbx1", path}
		if got, err := refOf(f.id()); err != nil || got != f {
			t.Errorf("%q became %+v, %v", path, got, err)
		}
	}
	for _, f := range []ref{{"sbx1", "/mnt/data/../secret"}, {"sbx1", "/mnt/data/a/../b"}, {"sbx1", "/mnt/data//a"}, {"sbx1", "/mnt/data/a\x00"}, {"sbx1", "/mnt/data/\xff"}, {"sbx1", "/mnt/data/"}, {"sbx1", ""}} {
		if got, err := refOf(f.id()); bothy.ErrorCode(err) != bothy.CodeFileNotFound {
			t.Errorf("%+v became %+v, %v", f, got, err)
		}
	}
	for _, id := range []string{"", "file-1", "cfile_", "cfile_%%", "cfile_!"} {
		if _, err := refOf(id); bothy.ErrorCode(err) != bothy.CodeFileNotFound {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestExpiredContainers(t *testing.T) {
	sb := &bothy.Sandbox{ID: "sbx1", State: bothy.StateStopped, Ended: &bothy.Ended{Reason: bothy.EndTimeout}, IdleSeconds: 1200}
	if c := containerOf(sb, time.Time{}); hasEnded(sb) || c.Status != "expired" || c.Expires.Minutes != 20 {
		t.Errorf("gone: %t, %+v", hasEnded(sb), c)
	}
	sb.Ended.Reason = bothy.EndTerminated
	if !hasEnded(sb) {
		t.Error("a deleted container is there")
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err        *bothy.Error
		status     int
		want       int
		kind, code string
	}{
		{bothy.Errorf(bothy.CodeUnauthenticated, "no"), 401, 401, "invalid_request_error", "invalid_api_key"},
		{bothy.Errorf(bothy.CodeSandboxEnded, "no"), 410, 404, "invalid_request_error", "sandbox_ended"},
		{bothy.Errorf(bothy.CodeRateLimited, "no"), 429, 429, "rate_limit_error", "rate_limited"},
		{bothy.Errorf(bothy.CodeInternal, "no"), 500, 500, "server_error", "internal"},
	} {
		w := httptest.NewRecorder()
		Fail(w, nil, c.status, c.err)
		if body := w.Body.String(); w.Code != c.want || !strings.Contains(body, c.kind) || !strings.Contains(body, `"code":"`+c.code) {
			t.Errorf("%s: %d %s", c.err.Code, w.Code, body)
		}
	}
}

// A body of few bytes may decode to many values.
func TestBodiesHaveLimits(t *testing.T) {
	for body, want := range map[string]bothy.Code{
		`{"name":"a"}`: "", ``: bothy.CodeInvalid, `{"name":`: bothy.CodeInvalid, `{"nam":"a"}`: bothy.CodeInvalid,
		`{"name":"a","x":[` + strings.Repeat("0,", maxValues) + `0]}`: bothy.CodeTooLarge,
		strings.Repeat(`[`, maxDepth+1):                               bothy.CodeTooLarge,
		`{"name":"` + strings.Repeat("x", maxBody) + `"}`:             bothy.CodeTooLarge,
	} {
		var v struct{ Name string }
		err := read(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/containers", strings.NewReader(body)), &v)
		if bothy.ErrorCode(err) != want {
			t.Errorf("%.30s: %v", body, err)
		}
	}
}
