package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/bothy-dev/bothy"
)

// requestID is what differs between two answers that are otherwise the same.
var requestID = regexp.MustCompile(`req_[A-Za-z0-9]+`)

// foreign asks for another tenant's sandbox in several ways. None may succeed, and none may differ from what is said
// of a sandbox that does not exist.
func (x *attacker) foreign(ctx context.Context) string {
	theirs := x.victim.id
	missing := theirs[:len(theirs)-6] + "aaaaaa"
	ask := func(id, method, path, body string) (int, string) {
		status, _, text := x.ask(ctx, method, strings.ReplaceAll(path, "ID", id), strings.NewReader(body), http.Header{"X-Api-Key": {x.key}})
		return status, requestID.ReplaceAllString(strings.ReplaceAll(text, id, "ID"), "")
	}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/sandboxes/ID", ""}, {"DELETE", "/v1/sandboxes/ID", ""}, {"POST", "/v1/sandboxes/ID/pause", "{}"},
		{"POST", "/v1/sandboxes/ID/exec", `{"command":"id"}`}, {"POST", "/v1/sandboxes/ID/fork", `{"count":1}`},
		{"GET", "/v1/sandboxes/ID/files?path=/etc/passwd", ""}, {"POST", "/v1/sandboxes/ID/snapshots", "{}"},
		{"GET", "/v1/sandboxes/ID/ports/80/", ""}, {"GET", "/v1/sandboxes/ID/processes", ""}, {"GET", "/v1/sandboxes/ID/metrics", ""},
		{"POST", "/v1/sandboxes", `{"snapshot":"ID"}`},
		{"GET", "/sandboxes/ID", ""}, {"DELETE", "/sandboxes/ID", ""}, {"POST", "/sandboxes/ID/pause", "{}"},
		{"GET", "/v1/containers/ID", ""}, {"DELETE", "/v1/containers/ID", ""},
	} {
		status, text := ask(theirs, c.method, c.path, c.body)
		if status > 0 && status < 400 {
			x.Errorf("%s %s: %d", c.method, c.path, status)
		}
		other, otherText := ask(missing, c.method, c.path, c.body)
		if status == 0 || other == 0 || status == http.StatusTooManyRequests || other == http.StatusTooManyRequests || status >= 500 || other >= 500 {
			continue // the server is busy with other attacks
		}
		if other != status || otherText != text {
			x.Errorf("%s %s: a foreign sandbox is %d %s, and a missing one %d %s", c.method, c.path, status, text, other, otherText)
		}
	}
	return ""
}

// pageServer is a program of a sandbox that wants its page stored by every cache.
const pageServer = `cat >/tmp/page.py <<'END'
import http.server
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Cache-Control", "public, max-age=31536000")
        self.end_headers()
        self.wfile.write(b"of the guest")
http.server.HTTPServer(("", 8099), Page).serve_forever()
END
nohup python3 /tmp/page.py >/dev/null 2>&1 &
for i in $(seq 300); do python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8099))' 2>/dev/null && exit; sleep 0.1; done`

// visitor uses the tokens of a sandbox for what they do not open, and its port for a page that caches would store
// under the server's name.
func (x *attacker) visitor(ctx context.Context) string {
	status, _, text := x.ask(ctx, "POST", "/sandboxes", strings.NewReader(`{"templateID":"`+templateName+`","network":{"allowPublicTraffic":false}}`), http.Header{"X-Api-Key": {x.key}})
	var made struct {
		ID      string `json:"sandboxID"`
		Agent   string `json:"envdAccessToken"`
		Traffic string `json:"trafficAccessToken"`
	}
	if status != http.StatusCreated || json.Unmarshal([]byte(text), &made) != nil {
		return fmt.Sprint(status, text)
	}
	defer func() { _ = x.Sandboxes.Terminate(context.WithoutCancel(ctx), made.ID) }()
	if made.Traffic == "" || made.Agent == "" {
		x.Errorf("a sandbox without tokens: %s", text)
	}
	x.shIn(ctx, made.ID, pageServer)
	none := http.Header{"Authorization": {""}}
	as := func(id, port, header, token string) http.Header {
		h := none.Clone()
		h.Set("E2b-Sandbox-Id", id)
		h.Set("E2b-Sandbox-Port", port)
		h.Set(header, token)
		return h
	}
	const agent, traffic = "X-Access-Token", "E2b-Traffic-Access-Token"
	for _, c := range []struct {
		what string
		to   http.Header
	}{
		{"the visitors' token", as(made.ID, "49983", traffic, made.Traffic)},
		{"the visitors' token as the agent's", as(made.ID, "49983", agent, made.Traffic)},
		{"the visitors' token for the interpreter", as(made.ID, "49999", traffic, made.Traffic)},
		{"the agent's token for another tenant's sandbox", as(x.victim.id, "49983", agent, made.Agent)},
		{"the visitors' token for another tenant's port", as(x.victim.id, "8099", traffic, made.Traffic)},
	} {
		for _, r := range []struct{ method, path, body string }{
			{"GET", "/files?path=/etc/passwd&username=root", ""}, {"POST", "/process.Process/List", "{}"},
			{"POST", "/filesystem.Filesystem/ListDir", `{"path":"/"}`}, {"POST", "/execute", `{"code":"1"}`}, {"GET", "/x", ""},
		} {
			if status, _, text := x.ask(ctx, r.method, r.path, strings.NewReader(r.body), c.to); status > 0 && status < 400 {
				x.Errorf("%s opens %s: %d %s", c.what, r.path, status, text)
			}
		}
	}
	seen := ""
	key := http.Header{"Authorization": {"Bearer " + x.key}}
	for path, h := range map[string]http.Header{"/x.js": as(made.ID, "8099", traffic, made.Traffic), "/v1/sandboxes/" + made.ID + "/ports/8099/x.js": key} {
		status, got, text := x.ask(ctx, "GET", path, nil, h)
		if status == http.StatusOK && text == "of the guest" {
			seen += "of the guest, "
			if got.Get("Cache-Control") != "private, no-store" || got.Get("Vary") == "" {
				x.Errorf("%s may be stored: %v", path, got)
			}
		}
	}
	if _, _, text := x.ask(ctx, "GET", "/console/", nil, as(made.ID, "8099", traffic, made.Traffic)); strings.Contains(text, "of the guest") {
		x.Error("a sandbox answers for the console")
	}
	return seen
}

// twice sends a command again under its key, after a pause has cut it off.
func (x *attacker) twice(ctx context.Context) string {
	sb, err := x.Sandboxes.Create(ctx, bothy.SandboxCreate{Template: templateName})
	if err != nil {
		return err.Error()
	}
	defer func() { _ = x.Sandboxes.Terminate(context.WithoutCancel(ctx), sb.ID) }()
	at := "/v1/sandboxes/" + sb.ID
	exec := func() int {
		return x.send(ctx, "POST", at+"/exec", strings.NewReader(`{"command":"echo x >>/tmp/runs; sleep 5"}`), http.Header{"Idempotency-Key": {"twice-" + sb.ID}})
	}
	var first sync.WaitGroup
	first.Go(func() { exec() })
	x.shIn(ctx, sb.ID, "for i in $(seq 300); do [ -s /tmp/runs ] && exit; sleep 0.1; done")
	paused := x.send(ctx, "POST", at+"/pause", strings.NewReader("{}"), nil)
	first.Wait()
	resumed := x.send(ctx, "POST", at+"/resume", strings.NewReader("{}"), nil)
	again := exec()
	r, err := x.Exec.Exec(ctx, sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "cat /tmp/runs"}})
	if err != nil {
		return err.Error()
	}
	if strings.Count(r.Stdout, "x") > 1 {
		x.Errorf("a command with one key ran twice: paused %d, resumed %d, again %d: %q", paused, resumed, again, r.Stdout)
	}
	return fmt.Sprint(paused, resumed, again)
}

// creates asks for one sandbox several times at once, and again, under one key.
func (x *attacker) creates(ctx context.Context) string {
	mark := fmt.Sprint("one-", x.builds.Add(1))
	create := func(int) int {
		return x.send(ctx, "POST", "/v1/sandboxes", strings.NewReader(`{"template":"`+templateName+`","metadata":{"attack":"`+mark+`"}}`), http.Header{"Idempotency-Key": {mark}})
	}
	got := x.crowd(8, create)
	again := create(0)
	made := 0
	list, err := x.Sandboxes.List(ctx, bothy.SandboxFilter{Metadata: map[string]string{"attack": mark}})
	if err != nil {
		return err.Error()
	}
	for _, sb := range list.Items {
		made++
		_ = x.Sandboxes.Terminate(context.WithoutCancel(ctx), sb.ID)
	}
	if made > 1 {
		x.Errorf("one key made %d sandboxes: %v, %d", made, got, again)
	}
	return fmt.Sprintf("%d made: %v, again %d", made, got, again)
}

// cutOff starts a command under a key. The server is to be killed then, and again sends the same request to the next.
func (x *attacker) cutOff(ctx context.Context) (again func()) {
	exec := func() int {
		return x.send(ctx, "POST", "/v1/sandboxes/"+x.id+"/exec", strings.NewReader(`{"command":"echo x >>/tmp/cut; sleep 2"}`), http.Header{"Idempotency-Key": {"cut-off"}})
	}
	var first sync.WaitGroup
	first.Go(func() { exec() })
	x.shIn(ctx, x.id, "for i in $(seq 300); do [ -s /tmp/cut ] && exit; sleep 0.1; done")
	return func() {
		first.Wait()
		status := exec()
		r, err := x.Exec.Exec(ctx, x.id, bothy.ExecRequest{Command: bothy.Command{Line: "cat /tmp/cut"}})
		if err != nil {
			x.Error(err)
		} else if strings.Count(r.Stdout, "x") != 1 {
			x.Errorf("a command with one key, sent again after the server was killed: %d, and it ran as %q", status, r.Stdout)
		}
	}
}
