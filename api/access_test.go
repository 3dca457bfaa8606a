package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/api/middleware"
)

// example fills a route's path.
func (f *fixture) example(c middleware.Operation, id string) string {
	return strings.NewReplacer("{id}", id, "{pid}", "7", "{name}", "python-3.12", "{context}", "ctx-1", "{shell}", "ctx-1", "{link}", "lnk_1", "{port}", "7", "{rest...}", "x/y").Replace(c.Path)
}

// No call under /v1 is possible without a key, with an invalid key, or with a key without the call's
// scope; and every call names a scope.
func TestEveryRouteIsGuarded(t *testing.T) {
	f := start(t)
	id := strings.TrimPrefix(f.create(), "/v1/sandboxes/")
	for _, c := range append(slices.Clone(f.registry.Operations()), f.registry.Undocumented()...) {
		path := f.example(c, id)
		for name, h := range map[string]header{
			"no key": {"Authorization": ""}, "another scheme": {"Authorization": "Basic " + apitest.Admin},
			"no value": {"Authorization": "Bearer "}, "the key alone": {"Authorization": apitest.Admin},
			"an unknown key": {"Authorization": "Bearer key-unknown"},
		} {
			res := f.do(c.Method, path, nil, h)
			p := f.failed(bothy.CodeUnauthenticated, res)
			if p.Hint == "" || !strings.HasPrefix(res.Header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s %s with %s: hint %q, WWW-Authenticate %q", c.Method, path, name, p.Hint, res.Header.Get("WWW-Authenticate"))
			}
		}
		f.failed(bothy.CodeTokenExpired, f.as(apitest.Expired).do(c.Method, path, nil))
		p := f.failed(bothy.CodeForbidden, f.as(apitest.Nobody).do(c.Method, path, nil))
		if !strings.Contains(p.Detail, string(c.Scope)) {
			t.Errorf("%s %s: %q does not name the scope", c.Method, path, p.Detail)
		}
		if reads := c.Scope == bothy.ScopeSandboxesRead || c.Scope == bothy.ScopeTemplatesRead; !reads {
			f.failed(bothy.CodeForbidden, f.as(apitest.Reader).do(c.Method, path, nil))
		}
		if (c.Method != http.MethodGet || c.ID == "proxy-port") && !strings.HasSuffix(string(c.Scope), ":write") && c.Scope != bothy.ScopeAdmin {
			t.Errorf("%s %s changes something with the scope %s", c.Method, path, c.Scope)
		}
	}
}

func TestTokensNeedAdmin(t *testing.T) {
	f := start(t)
	for _, c := range f.registry.Operations() {
		if c.Tag != "Tokens" {
			continue
		}
		f.failed(bothy.CodeForbidden, f.as(apitest.Writer).do(c.Method, f.example(c, "tok_1"), nil))
	}
	admin := f.as(apitest.Admin)
	token := decode[bothy.Token](admin, admin.ok(201, admin.do("POST", "/v1/tokens", `{"name":"ci","scopes":["sandboxes:read"]}`)))
	if token.Key == "" || strings.Contains(f.logged.String(), token.Key) {
		t.Fatalf("key %q", token.Key)
	}
	f.as(token.Key).ok(200, f.as(token.Key).do("GET", "/v1/sandboxes", nil))
	if res := admin.ok(200, admin.do("GET", "/v1/tokens", nil)); strings.Contains(res.body, token.Key) {
		t.Errorf("the list shows the key: %s", res.body)
	}
	admin.failed(bothy.CodeInvalid, admin.do("POST", "/v1/tokens", `{"scopes":["root"]}`))
	admin.ok(204, admin.do("DELETE", "/v1/tokens/"+token.ID, nil))
	f.failed(bothy.CodeUnauthenticated, f.as(token.Key).do("GET", "/v1/sandboxes", nil))
	admin.failed(bothy.CodeNotFound, admin.do("DELETE", "/v1/tokens/"+token.ID, nil))
}

// A stranger with every scope sees nothing of another project.
func TestStrangerSeesNothing(t *testing.T) {
	f := start(t)
	path := f.create()
	id := strings.TrimPrefix(path, "/v1/sandboxes/")
	f.ok(200, f.do("PUT", path+"/files?path=secret", "x"))
	snapshot := decode[bothy.Snapshot](f, f.ok(201, f.do("POST", path+"/snapshots", nil)))
	stranger := f.as(apitest.Stranger)
	bodies := map[string]string{
		"PATCH /v1/sandboxes/{id}": `{"name":"x"}`, "POST /v1/sandboxes/{id}/exec": `{"command":"echo"}`, "POST /v1/sandboxes/{id}/code": `{"code":"1"}`,
		"POST /v1/sandboxes/{id}/shells/{shell}/exec": `{"command":"echo"}`,
		"POST /v1/sandboxes/{id}/files":               `{"path":"x","content":""}`, "POST /v1/sandboxes/{id}/files/mkdir": `{"path":"x"}`,
		"POST /v1/sandboxes/{id}/files/move":             `{"from":"secret","to":"x"}`,
		"POST /v1/sandboxes/{id}/processes/{pid}/stdin":  `{}`,
		"POST /v1/sandboxes/{id}/processes/{pid}/signal": `{"signal":"SIGTERM"}`,
		"POST /v1/sandboxes/{id}/rollback":               `{"snapshot_id":"` + snapshot.ID + `"}`,
		"POST /v1/sandboxes/{id}/template":               `{"name":"taken"}`,
		"POST /v1/sandboxes/{id}/links":                  `{"port":80}`,
		"POST /v1/sandboxes/{id}/wait":                   `{"port":80}`,
		"PUT /v1/sandboxes/{id}/files":                   "x",
		"PUT /v1/sandboxes/{id}/files/archive":           "x",
	}
	n := 0
	for _, c := range append(slices.Clone(f.registry.Operations()), f.registry.Undocumented()...) {
		if !strings.HasPrefix(c.Path, "/v1/sandboxes/{id}") {
			continue
		}
		n++
		target := f.example(c, id)
		if strings.Contains(c.Path, "/files") && c.Method != http.MethodPost {
			target += "?path=secret"
		}
		var body any
		if b, ok := bodies[c.Method+" "+c.Path]; ok {
			body = b
		}
		h := header{}
		if c.ID == "terminal" || c.ID == "forward-port" || c.ID == "connect-ssh" {
			h["Upgrade"] = "websocket"
		}
		code := bothy.CodeSandboxNotFound
		if c.ID == "rollback-sandbox" {
			code = bothy.CodeSnapshotNotFound
		}
		if c.ID == "move-sandbox" {
			code = bothy.CodeForbidden // that is the operator's, whatever there is
		}
		stranger.failed(code, stranger.do(c.Method, target, body, h))
	}
	if n < 20 {
		t.Errorf("only %d calls were tried", n)
	}
	for _, c := range []struct{ method, path string }{{"GET", ""}, {"DELETE", ""}} {
		stranger.failed(bothy.CodeSnapshotNotFound, stranger.do(c.method, "/v1/snapshots/"+snapshot.ID+c.path, nil))
	}
	for _, list := range []string{"/v1/sandboxes", "/v1/snapshots", "/v1/events"} {
		if res := stranger.ok(200, stranger.do("GET", list, nil)); strings.TrimSpace(res.body) != `{"items":[]}` {
			t.Errorf("a stranger sees %s", res.body)
		}
	}
}

func TestMountedHandlers(t *testing.T) {
	f := start(t)
	f.Handle("/metrics", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1")) }))
	f.Handle("/api/sandboxes/mcp", f.Authenticated(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(bothy.CallerFrom(r.Context()).TokenID))
	})))
	if res := f.as("").ok(200, f.as("").do("GET", "/metrics", nil)); res.body != "up 1" || res.Header.Get("X-Request-Id") == "" {
		t.Errorf("%q", res.body)
	}
	if res := f.ok(200, f.do("POST", "/api/sandboxes/mcp", "{}")); res.body != "tok_writer" {
		t.Errorf("%q", res.body)
	}
	f.failed(bothy.CodeUnauthenticated, f.as("").do("POST", "/api/sandboxes/mcp", "{}"))
}
