package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// call is a request that must be refused.
type call struct {
	method, path string
	body         string
	key          string // default: the test's own
	contentType  string // default: JSON
	code         bothy.Code
	status       int
	value        string // must be in the detail
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	ended := newBox(t, bothy.SandboxCreate{})
	if err := ended.s.Sandboxes.Terminate(t.Context(), ended.id); err != nil {
		t.Fatal(err)
	}
	keys := newKeys(t, b)
	box, exec, files := "/v1/sandboxes/"+b.id, "/v1/sandboxes/"+b.id+"/exec", "/v1/sandboxes/"+b.id+"/files"
	b.write("/workspace/file", "content")
	long := strings.Repeat("x", 5000)

	for name, c := range map[string]call{
		"unknown template":          {"POST", "/v1/sandboxes", `{"template":"no-such-thing"}`, "", "", bothy.CodeTemplateNotFound, 404, "no-such-thing"},
		"template that climbs":      {"POST", "/v1/sandboxes", `{"template":"../../etc"}`, "", "", bothy.CodeInvalid, 400, "../../etc"},
		"too much memory":           {"POST", "/v1/sandboxes", `{"memory_mb":1000000}`, "", "", bothy.CodeInvalid, 400, "not 1000000"},
		"negative memory":           {"POST", "/v1/sandboxes", `{"memory_mb":-1}`, "", "", bothy.CodeInvalid, 400, "-1"},
		"too many processors":       {"POST", "/v1/sandboxes", `{"cpu":99}`, "", "", bothy.CodeInvalid, 400, "99"},
		"too large a disk":          {"POST", "/v1/sandboxes", `{"disk_mb":99999999}`, "", "", bothy.CodeInvalid, 400, "not 99999999"},
		"unknown size":              {"POST", "/v1/sandboxes", `{"size":"gigantic"}`, "", "", bothy.CodeInvalid, 400, "gigantic"},
		"memory in words":           {"POST", "/v1/sandboxes", `{"memory_mb":"plenty"}`, "", "", bothy.CodeInvalid, 400, "plenty"},
		"too long a time":           {"POST", "/v1/sandboxes", `{"timeout_seconds":99999999}`, "", "", bothy.CodeInvalid, 400, "not 99999999"},
		"negative time":             {"POST", "/v1/sandboxes", `{"timeout_seconds":-5}`, "", "", bothy.CodeInvalid, 400, "-5"},
		"unknown network":           {"POST", "/v1/sandboxes", `{"network":"everything"}`, "", "", bothy.CodeInvalid, 400, "everything"},
		"misspelt rule":             {"POST", "/v1/sandboxes", `{"network":{"mode":"restricted","alow_domains":["x"]}}`, "", "", bothy.CodeInvalid, 400, "alow_domains"},
		"unknown engine":            {"POST", "/v1/sandboxes", `{"engine":"steam"}`, "", "", bothy.CodeInvalid, 400, "steam"},
		"unknown field":             {"POST", "/v1/sandboxes", `{"memory":512}`, "", "", bothy.CodeInvalid, 400, "memory"},
		"broken JSON":               {"POST", "/v1/sandboxes", `{"template":`, "", "", bothy.CodeInvalid, 400, ""},
		"a list for an object":      {"POST", "/v1/sandboxes", `[]`, "", "", bothy.CodeInvalid, 400, ""},
		"no UTF-8":                  {"POST", "/v1/sandboxes", "{\"name\":\"\xff\xfe\"}", "", "", bothy.CodeInvalid, 400, "UTF-8"},
		"environment with a zero":   {"POST", "/v1/sandboxes", `{"env":{"A":"b\u0000c"}}`, "", "", bothy.CodeInvalid, 400, "A"},
		"environment with a sign":   {"POST", "/v1/sandboxes", `{"env":{"A=B":"c"}}`, "", "", bothy.CodeInvalid, 400, "A=B"},
		"long name":                 {"POST", "/v1/sandboxes", `{"name":"` + long + `"}`, "", "", bothy.CodeInvalid, 400, "128"},
		"body too large":            {"POST", exec, `{"command":"` + strings.Repeat("x", 17<<20) + `"}`, "", "", bothy.CodeTooLarge, 413, "16"},
		"not JSON":                  {"POST", exec, "command=true", "", "application/x-www-form-urlencoded", bothy.CodeMediaType, 415, ""},
		"unknown sandbox":           {"GET", "/v1/sandboxes/sbx0000000000000000", "", "", "", bothy.CodeSandboxNotFound, 404, "sbx0000000000000000"},
		"id that climbs":            {"GET", "/v1/sandboxes/" + url.PathEscape("../../etc/passwd"), "", "", "", bothy.CodeSandboxNotFound, 404, "../../etc/passwd"},
		"ended sandbox":             {"POST", "/v1/sandboxes/" + ended.id + "/exec", `{"command":"true"}`, "", "", bothy.CodeSandboxEnded, 409, ended.id},
		"unknown path":              {"GET", "/v1/nothing", "", "", "", bothy.CodeNotFound, 404, "/v1/nothing"},
		"nothing at the root":       {"GET", "/", "", "", "", bothy.CodeNotFound, 404, "nothing at /"},
		"wrong method":              {"PUT", "/v1/sandboxes", `{}`, "", "", bothy.CodeMethodNotAllowed, 405, "PUT"},
		"unknown state":             {"GET", "/v1/sandboxes?state=asleep", "", "", "", bothy.CodeInvalid, 400, "asleep"},
		"unknown parameter":         {"GET", "/v1/sandboxes?limits=3", "", "", "", bothy.CodeInvalid, 400, "limits"},
		"impossible page":           {"GET", "/v1/sandboxes?limit=0", "", "", "", bothy.CodeInvalid, 400, "limit"},
		"made-up cursor":            {"GET", "/v1/sandboxes?cursor=made-up", "", "", "", bothy.CodeInvalid, 400, "made-up"},
		"no command":                {"POST", exec, `{}`, "", "", bothy.CodeInvalid, 400, "command"},
		"empty command":             {"POST", exec, `{"command":""}`, "", "", bothy.CodeCommandInvalid, 400, ""},
		"command of another kind":   {"POST", exec, `{"command":{"run":"true"}}`, "", "", bothy.CodeInvalid, 400, "command"},
		"unknown program":           {"POST", exec, `{"command":["no-such-program"]}`, "", "", bothy.CodeCommandNotFound, 400, "no-such-program"},
		"program that is no file":   {"POST", exec, `{"command":["/workspace"]}`, "", "", bothy.CodeCommandInvalid, 400, "/workspace"},
		"program that cannot run":   {"POST", exec, `{"command":["/workspace/file"]}`, "", "", bothy.CodeCommandInvalid, 400, "/workspace/file"},
		"argument with a zero":      {"POST", exec, `{"command":["echo","a\u0000b"]}`, "", "", bothy.CodeCommandInvalid, 400, ""},
		"missing folder":            {"POST", exec, `{"command":"true","cwd":"/no/such/folder"}`, "", "", bothy.CodeInvalid, 400, "/no/such/folder"},
		"folder that is a file":     {"POST", exec, `{"command":"true","cwd":"/workspace/file"}`, "", "", bothy.CodeInvalid, 400, "/workspace/file"},
		"unknown user":              {"POST", exec, `{"command":"true","user":"nobody-knows"}`, "", "", bothy.CodeUserNotFound, 400, "nobody-knows"},
		"negative command time":     {"POST", exec, `{"command":"true","timeout_seconds":-1}`, "", "", bothy.CodeInvalid, 400, "-1"},
		"unknown process's output":  {"GET", box + "/processes/99999/output", "", "", "", bothy.CodeProcessNotFound, 404, "99999"},
		"unknown process":           {"POST", box + "/processes/99999/signal", `{"signal":"TERM"}`, "", "", bothy.CodeProcessNotFound, 404, "99999"},
		"signal to nobody":          {"POST", box + "/processes/99999/signal", `{"signal":9}`, "", "", bothy.CodeProcessNotFound, 404, "99999"},
		"process in words":          {"GET", box + "/processes/first/output", "", "", "", bothy.CodeInvalid, 400, "first"},
		"missing file":              {"GET", files + "?path=/no/such/file", "", "", "", bothy.CodeFileNotFound, 404, "/no/such/file"},
		"path with a zero":          {"GET", files + "?path=a%00b", "", "", "", bothy.CodePathInvalid, 400, `a\x00b`},
		"path without UTF-8":        {"GET", files + "?path=%ff", "", "", "", bothy.CodePathInvalid, 400, `\xff`},
		"path too long":             {"GET", files + "?path=" + strings.Repeat("x/", 3000), "", "", "", bothy.CodePathInvalid, 400, "x/x/"},
		"no path":                   {"GET", files, "", "", "", bothy.CodeInvalid, 400, "path"},
		"path that climbs":          {"GET", files + "?path=../../../../etc/no-such-file", "", "", "", bothy.CodeFileNotFound, 404, "/etc/no-such-file"},
		"folder below a file":       {"GET", files + "?path=/workspace/file/below", "", "", "", bothy.CodeNotADirectory, 400, "/workspace/file/below"},
		"writing onto a folder":     {"PUT", files + "?path=/workspace", "x", "", "application/octet-stream", bothy.CodeIsADirectory, 400, "/workspace"},
		"writing where one may not": {"PUT", files + "?path=/etc/new", "x", "", "application/octet-stream", bothy.CodePermission, 403, "/etc/new"},
		"impossible mode":           {"PUT", files + "?path=/workspace/m&mode=999", "x", "", "application/octet-stream", bothy.CodeInvalid, 400, "999"},
		"removing everything":       {"DELETE", files + "?path=/&user=root", "", "", "", bothy.CodePathInvalid, 400, ""},
		"moving what is not there":  {"POST", files + "/move", `{"from":"/no/such","to":"/workspace/x"}`, "", "", bothy.CodeFileNotFound, 404, "/no/such"},
		"content that is no base64": {"POST", files, `{"path":"/workspace/b","content":"***","encoding":"base64"}`, "", "", bothy.CodeInvalid, 400, ""},
		"unknown encoding":          {"POST", files, `{"path":"/workspace/b","content":"x","encoding":"rot13"}`, "", "", bothy.CodeInvalid, 400, "rot13"},
		"file of an unknown user":   {"GET", files + "?path=/workspace/file&user=nobody-knows", "", "", "", bothy.CodeUserNotFound, 400, "nobody-knows"},
		"archive that is none":      {"PUT", files + "/archive?path=/workspace/a", "no tar " + long, "", "application/x-tar", bothy.CodeInvalid, 400, ""},

		"no key":                     {"GET", "/v1/sandboxes", "", "none", "", bothy.CodeUnauthenticated, 401, ""},
		"made-up key":                {"GET", "/v1/sandboxes", "", "bothy_" + strings.Repeat("0", 64), "", bothy.CodeUnauthenticated, 401, ""},
		"revoked key":                {"GET", box, "", keys.revoked, "", bothy.CodeUnauthenticated, 401, ""},
		"expired key":                {"GET", box, "", keys.expired, "", bothy.CodeTokenExpired, 401, "expired"},
		"key that only reads":        {"POST", exec, `{"command":"true"}`, keys.reader, "", bothy.CodeForbidden, 403, "sandboxes:write"},
		"reader deletes":             {"DELETE", box, "", keys.reader, "", bothy.CodeForbidden, 403, "sandboxes:write"},
		"reader makes keys":          {"POST", "/v1/tokens", `{}`, keys.reader, "", bothy.CodeForbidden, 403, "admin"},
		"writer makes keys":          {"POST", "/v1/tokens", `{"scopes":["admin"]}`, keys.writer, "", bothy.CodeForbidden, 403, "admin"},
		"another project's sandbox":  {"GET", box, "", keys.other, "", bothy.CodeSandboxNotFound, 404, b.id},
		"another project's command":  {"POST", exec, `{"command":"true"}`, keys.other, "", bothy.CodeSandboxNotFound, 404, b.id},
		"another project's file":     {"GET", files + "?path=/etc/passwd", "", keys.other, "", bothy.CodeSandboxNotFound, 404, b.id},
		"another project terminates": {"DELETE", box, "", keys.other, "", bothy.CodeSandboxNotFound, 404, b.id},
		"another project's network":  {"PATCH", box, `{"network":"open"}`, keys.other, "", bothy.CodeSandboxNotFound, 404, b.id},
		"another project's log":      {"GET", box + "/network/log", "", keys.other, "", bothy.CodeSandboxNotFound, 404, b.id},
		"another project's metrics":  {"GET", box + "/metrics", "", keys.other, "", bothy.CodeSandboxNotFound, 404, b.id},
	} {
		t.Run(name, func(t *testing.T) { b.refused(t, c) })
	}
	b.usable()
}

// keys are API keys with limited rights.
type keys struct{ reader, writer, other, expired, revoked string }

func newKeys(t *testing.T, b *box) keys {
	t.Helper()
	make := func(c bothy.TokenCreate) *bothy.Token {
		t.Helper()
		k, err := b.s.Tokens.CreateToken(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if _, err := b.s.Projects.CreateProject(t.Context(), bothy.ProjectCreate{ID: "other"}); err != nil && bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Fatal(err)
	}
	soon := time.Now().Add(3 * time.Second)
	k := keys{
		expired: make(bothy.TokenCreate{ExpiresAt: &soon}).Key,
		reader:  make(bothy.TokenCreate{Scopes: []bothy.Scope{bothy.ScopeSandboxesRead}}).Key,
		writer:  make(bothy.TokenCreate{}).Key,
		other:   make(bothy.TokenCreate{ProjectID: "other", Scopes: bothy.AllScopes}).Key,
	}
	gone := make(bothy.TokenCreate{})
	k.revoked = gone.Key
	if err := b.s.Tokens.DeleteToken(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(soon) + 10*time.Millisecond)
	return k
}

// refused sends a request and checks that the answer is a problem with the wanted code, that its detail
// names the value at fault, and that it has a hint.
func (b *box) refused(t *testing.T, c call) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, c.method, b.s.URL()+c.path, strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	if key := c.key; key != "none" {
		if key == "" {
			key = b.s.Key
		}
		r.Header.Set("Authorization", "Bearer "+key)
	}
	if c.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.contentType != "" {
		r.Header.Set("Content-Type", c.contentType)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Status int
		Code   bothy.Code
		Detail string
		Hint   string
	}
	problem, status, wanted := text, res.StatusCode, "application/problem+json"
	// A slow stream may begin before the error is known, which is then its only event.
	if _, event, ok := bytes.Cut(text, []byte("event: error\ndata: ")); ok && status == http.StatusOK {
		problem, status, wanted = event, c.status, "text/event-stream"
	}
	if err := json.Unmarshal(problem, &p); err != nil || !strings.HasPrefix(res.Header.Get("Content-Type"), wanted) {
		t.Fatalf("the answer is not a problem: %s %.300s", res.Status, text)
	}
	if status != c.status || p.Status != c.status || p.Code != c.code || !strings.Contains(p.Detail, c.value) || p.Detail == "" || p.Hint == "" {
		t.Errorf("got %s %.600s, want %d %s with %q in the detail, and a hint", res.Status, bytes.TrimSpace(text), c.status, c.code, c.value)
	}
	for _, secret := range []string{"goroutine ", ".go:", shared.Home} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("the answer reveals internals of the server: %.300s", text)
		}
	}
}
