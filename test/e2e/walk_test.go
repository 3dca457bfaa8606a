package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// secretWord is in everything that the victim has. No answer to others may contain it.
const secretWord = "walkers-never-see-this"

// victim is a project with one object of every kind.
type victim struct {
	*testing.T
	s        *server
	box      *box
	sandbox  string
	pid      string
	context  string
	snapshot string
	token    string
	link     string
	webhook  string
	agents   string
	build    string
	project  string
}

func newVictim(t *testing.T, s *server) *victim {
	t.Helper()
	v := &victim{T: t, s: s, project: "victims"}
	v.box = s.newBox(t, bothy.SandboxCreate{Name: secretWord, Metadata: map[string]string{"word": secretWord}, Env: map[string]string{"WORD": secretWord}})
	v.sandbox = v.box.id
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Files.Write(t.Context(), v.sandbox, "/workspace/"+secretWord, strings.NewReader(secretWord), bothy.WriteOptions{})
	must(err)
	r, err := s.Exec.Exec(t.Context(), v.sandbox, bothy.ExecRequest{Command: bothy.Command{Line: "echo " + secretWord + "; exec sleep 1000"}, Background: true})
	must(err)
	v.pid = fmt.Sprint(r.PID)
	c, err := s.Code.CreateContext(t.Context(), v.sandbox, bothy.CodeContextCreate{Language: "bash"})
	must(err)
	v.context = c.ID
	n, err := s.Snapshots.CreateSnapshot(t.Context(), v.sandbox, bothy.SnapshotCreate{Name: secretWord})
	must(err)
	v.snapshot = n.ID
	t.Cleanup(func() { _ = s.Snapshots.DeleteSnapshot(context.Background(), n.ID) })
	k, err := s.Tokens.CreateToken(t.Context(), bothy.TokenCreate{Name: secretWord})
	must(err)
	v.token = k.ID
	l, err := s.Links.CreateLink(t.Context(), v.sandbox, bothy.LinkCreate{Port: 8000})
	must(err)
	v.link = l.ID
	h, err := s.Webhooks.CreateWebhook(t.Context(), bothy.WebhookCreate{Name: secretWord, URL: "https://hooks.example.org", Disabled: true})
	must(err)
	v.webhook = h.ID
	g, err := s.Agents.AttachAgents(t.Context(), bothy.AgentAttach{Environment: secretWord, Key: secretWord + "-the-key", URL: "https://agents.example.org"})
	must(err)
	v.agents = g.ID
	t.Cleanup(func() { _ = s.Agents.DetachAgents(context.Background(), g.ID) })
	t.Cleanup(func() { _ = s.Webhooks.DeleteWebhook(context.Background(), h.ID) })
	b, err := s.Builder.StartBuild(t.Context(), bothy.BuildRequest{Name: "walked", Dockerfile: "ARG word=" + secretWord + "\nFROM scratch"})
	must(err)
	v.build = b.ID
	must(s.Builder.BuildLog(t.Context(), b.ID, 0, func(int64, bothy.BuildEvent) error { return nil }))
	t.Cleanup(func() { _ = s.Templates.RemoveTemplate(context.Background(), "walked") })
	_, err = s.Projects.CreateProject(t.Context(), bothy.ProjectCreate{ID: v.project, Plan: bothy.PlanPro})
	must(err)
	return v
}

// all returns everything that the victim has, as its owner sees it, except for what changes by itself.
func (v *victim) all() string {
	v.Helper()
	var b strings.Builder
	for _, path := range []string{
		"/v1/sandboxes/" + v.sandbox, "/v1/sandboxes/" + v.sandbox + "/files?path=/workspace", "/v1/sandboxes/" + v.sandbox + "/contexts", "/v1/sandboxes/" + v.sandbox + "/links",
		"/v1/snapshots?sandbox_id=" + v.sandbox, "/v1/projects", "/v1/templates", "/v1/templates/builds", "/v1/webhooks", "/v1/agents",
	} {
		text, err := v.s.Do(v.Context(), http.MethodGet, path, nil)
		if err != nil {
			v.Fatal(path, err)
		}
		fmt.Fprintf(&b, "%s %s\n", path, text)
	}
	list, err := v.s.Exec.Processes(v.Context(), v.sandbox)
	if err != nil || len(list) != 1 || !list[0].Running {
		v.Fatalf("the process: %+v, %v", list, err)
	}
	tokens, err := v.s.Tokens.Tokens(v.Context())
	if err != nil {
		v.Fatal(err)
	}
	for _, k := range tokens {
		if k.ID == v.token {
			fmt.Fprintln(&b, k.ID)
		}
	}
	return b.String()
}

// bodies are valid request bodies by operation. A new operation with a body must be added here.
func (v *victim) bodies() map[string]string {
	return map[string]string{
		"create-project": `{"id":"walkers-own"}`, "update-project": `{"plan":"starter"}`, "update-host": `{"state":"cordoned"}`, "move-sandbox": `{}`, "update-sandbox": `{"name":"taken"}`,
		"run-code": `{"code":"touch /workspace/taken","language":"bash"}`, "exec": `{"command":"touch /workspace/taken"}`, "exec-in-shell": `{"command":"touch /workspace/taken"}`,
		"write-file": `{"path":"/workspace/taken","content":"x"}`, "put-file": "x", "write-archive": "", "make-folder": `{"path":"/workspace/taken"}`,
		"move-file": `{"from":"/workspace/` + secretWord + `","to":"/workspace/taken"}`, "create-link": `{"port":8000}`, "wait": `{"port":8000}`,
		"signal-process": `{"signal":"KILL"}`, "write-stdin": `{"data":"x"}`, "rollback-sandbox": `{"snapshot_id":"` + v.snapshot + `"}`,
		"start-build": `{"name":"` + templateName + `","dockerfile":"FROM scratch\nCOPY nothing /"}`, "upload-build-context": "",
		"create-template": `{"name":"taken"}`, "tag-template": `{"tags":["taken"]}`, "push-template": `{"reference":"127.0.0.1:1/taken:1"}`, "build-template": `{"name":"` + templateName + `"}`, "create-sandbox": `{"snapshot_id":"` + v.snapshot + `"}`,
		"create-token": `{"project":"default"}`, "create-webhook": `{"url":"https://hooks.example.org","disabled":true}`, "attach-agents": `{"environment":"taken","key":"a-key-of-nobody","url":"https://agents.example.org"}`, "update-webhook": `{"name":"taken"}`,
	}
}

type operation struct {
	id, method, path, scope, body string
}

// operations returns all operations of the server's OpenAPI document, with the victim's ids.
func (v *victim) operations() []operation {
	v.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Scope       string `json:"x-scope"`
			RequestBody struct{ Required bool }
			Parameters  []struct {
				Name, In string
				Required bool
			}
		}
	}
	text, err := v.s.Do(v.Context(), http.MethodGet, "/openapi.json", nil)
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil {
		v.Fatal(err)
	}
	bodies := v.bodies()
	var all []operation
	for path, item := range doc.Paths {
		id := v.sandbox
		switch {
		case strings.HasPrefix(path, "/v1/snapshots/"):
			id = v.snapshot
		case strings.HasPrefix(path, "/v1/templates/builds/"):
			id = v.build
		case strings.HasPrefix(path, "/v1/tokens/"):
			id = v.token
		case strings.HasPrefix(path, "/v1/webhooks/"):
			id = v.webhook
		case strings.HasPrefix(path, "/v1/agents/"):
			id = v.agents
		case strings.HasPrefix(path, "/v1/projects/"):
			id = v.project
		}
		at := strings.NewReplacer("{id}", id, "{pid}", v.pid, "{context}", v.context, "{port}", "8000", "{link}", v.link, "{host}", "one", "{shell}", "default", "{name}", templateName).Replace(path)
		if strings.Contains(at, "{") {
			v.Fatalf("%s: add a value for its parameter here", path)
		}
		for method, op := range item {
			o := operation{op.OperationID, strings.ToUpper(method), at, op.Scope, bodies[op.OperationID]}
			if _, there := bodies[op.OperationID]; op.RequestBody.Required && !there {
				v.Errorf("%s needs a body: add one to bodies", op.OperationID)
			}
			for _, p := range op.Parameters {
				switch {
				case p.In != "query" || !p.Required:
				case p.Name == "since":
					o.path += "?since=" + v.snapshot
				default:
					o.path += "?" + p.Name + "=/workspace/" + secretWord
				}
			}
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.id, b.id) })
	if len(all) < 55 {
		v.Fatalf("only %d operations are described", len(all))
	}
	return all
}

// ask sends a request literally, without normalizing it, and returns the answer.
func (s *server) ask(t *testing.T, method, target, body string, headers ...string) (status int, header http.Header, text string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", s.Address, hangs)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(hangs))
	var b bytes.Buffer
	connection := "close"
	if slices.Contains(headers, "Upgrade: websocket") {
		connection = "Upgrade"
	}
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: %s\r\n", method, target, s.Address, connection)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	if body != "" || method != http.MethodGet {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + body)
	if _, err := c.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s %q: %v", method, target, err)
	}
	defer r.Body.Close()
	all, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("%s %q: %v", method, target, err)
	}
	return r.StatusCode, r.Header, string(all)
}

func bearer(key string) string { return "Authorization: Bearer " + key }

// Every operation is tried without a key, with a forged, expired or revoked key, with a key without the
// scope, and with a key of another project. None may read or change anything of the victim.
func TestTheWholeAPIAsSomebodyElse(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	v := newVictim(t, s)
	operations := v.operations()
	key := func(req bothy.TokenCreate) *bothy.Token {
		t.Helper()
		k, err := s.Tokens.CreateToken(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if _, err := s.Projects.CreateProject(t.Context(), bothy.ProjectCreate{ID: "walkers", Plan: bothy.PlanPro}); err != nil {
		t.Fatal(err)
	}
	stranger := key(bothy.TokenCreate{ProjectID: "walkers", Scopes: bothy.AllScopes}).Key
	soon := time.Now().Add(5 * time.Second)
	expired := key(bothy.TokenCreate{Scopes: bothy.AllScopes, ExpiresAt: &soon})
	revoked := key(bothy.TokenCreate{Scopes: bothy.AllScopes})
	if err := s.Tokens.DeleteToken(t.Context(), revoked.ID); err != nil {
		t.Fatal(err)
	}
	forged := []byte(s.Key)
	forged[len(forged)-1] ^= 1
	without := map[string]string{}
	for _, scope := range bothy.AllScopes {
		others := slices.DeleteFunc(slices.Clone(bothy.AllScopes), func(x bothy.Scope) bool { return x == scope || x == bothy.ScopeAdmin })
		if scope == bothy.ScopeAdmin || len(others) > 0 {
			without[string(scope)] = key(bothy.TokenCreate{Scopes: others}).Key
		}
	}
	before := v.all()
	eventually(t, "the key has expired", func() bool {
		status, _, _ := s.ask(t, "GET", "/v1/limits", "", bearer(expired.Key))
		return status == 401
	})
	check := func(who string, o operation, want []int, headers ...string) {
		t.Helper()
		if o.id == "terminal" || o.id == "forward-port" || o.id == "connect-ssh" {
			headers = append(headers, "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
		}
		status, _, text := s.ask(t, o.method, o.path, o.body, headers...)
		if !slices.Contains(want, status) {
			t.Errorf("%s: %s %s answers %d %.200s, want one of %v", who, o.method, o.path, status, text, want)
		}
		if o.id == "list-audit" { // it shows the caller's own requests
			text = strings.ReplaceAll(text, "/workspace/"+secretWord, "")
			if strings.Contains(text, `"project":"default"`) {
				t.Errorf("%s sees records of others: %.300s", who, text)
			}
		}
		if strings.Contains(text, secretWord) && !strings.Contains(o.path, "?path=") || strings.Contains(text, s.Key) {
			t.Errorf("%s: %s %s reveals %.300s", who, o.method, o.path, text)
		}
	}
	// These operations succeed for a stranger because they concern its own, empty project.
	own := map[string][]int{
		"list-audit": {200}, "list-events": {200}, "get-limits": {200}, "list-projects": {200}, "list-sandboxes": {200}, "list-metrics": {200}, "list-snapshots": {200},
		"list-templates": {200}, "list-builds": {200}, "start-build": {201}, "upload-build-context": {201, 400}, "get-template": {200}, "get-template-sbom": {200}, "get-template-provenance": {200}, "list-tokens": {200}, "get-usage": {200}, "list-webhooks": {200}, "create-webhook": {201}, "list-agents": {200}, "attach-agents": {201}, "import-snapshot": {400, 422},
		"get-archive-key": {200}, // the public half
		"push-template":   {422}, // the address is closed to projects
	}
	for _, o := range operations {
		check("nobody", o, []int{401})
		check("somebody with a forged key", o, []int{401}, bearer(string(forged)))
		check("somebody with a word", o, []int{401}, bearer("admin"))
		check("somebody with an expired key", o, []int{401}, bearer(expired.Key))
		check("somebody with a revoked key", o, []int{401}, bearer(revoked.Key))
		check("somebody without the scope", o, []int{403}, bearer(without[o.scope]))
		want := own[o.id]
		if want == nil {
			want = []int{403, 404}
		}
		check("a stranger", o, want, bearer(stranger))
	}
	if after := v.all(); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	// Every attempt is in the audit.
	p, err := s.Audit.Audit(t.Context(), bothy.AuditFilter{ProjectID: "walkers", Refused: true})
	if err != nil || len(p.Items) == 0 {
		t.Errorf("the stranger's attempts are not in the audit: %v", err)
	}
	t.Run("missing", func(t *testing.T) { v.T = t; v.likeMissing(stranger, operations) })
	t.Run("tricks", func(t *testing.T) { v.T = t; v.tricks(stranger, before) })
}

// likeMissing compares the answers about the victim's objects with those about objects that never
// existed. They must not tell a stranger which exist.
func (v *victim) likeMissing(stranger string, operations []operation) {
	t, s := v.T, v.s
	ids := []string{v.sandbox, v.snapshot, v.token, v.link, v.webhook, v.agents, v.build, v.project}
	var missing []string
	for _, id := range ids {
		missing = append(missing, id, id[:len(id)-4]+strings.Map(func(r rune) rune {
			if r == '0' {
				return '1'
			}
			return '0'
		}, id[len(id)-4:]))
	}
	other := strings.NewReplacer(missing...)
	compare := func(what string, foreign, missing string) {
		t.Helper()
		if other.Replace(foreign) != missing {
			t.Errorf("%s: another project's\n%s\na missing one\n%s", what, foreign, missing)
		}
	}
	answerTo := func(key string, o operation) string {
		headers := []string{bearer(key), "X-Request-Id: the-same"}
		if o.id == "terminal" || o.id == "forward-port" || o.id == "connect-ssh" {
			headers = append(headers, "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
		}
		status, _, text := s.ask(t, o.method, o.path, o.body, headers...)
		return fmt.Sprintf("%d %s", status, text)
	}
	answer := func(o operation) string { return answerTo(stranger, o) }
	// One who may see the sandbox gets another answer: the comparison can tell.
	seen := operation{id: "get-sandbox", method: "GET", path: "/v1/sandboxes/" + v.sandbox}
	if found := answerTo(s.Key, seen); !strings.HasPrefix(found, "200 ") || other.Replace(found) == answer(seen) {
		t.Errorf("its owner gets %s", found)
	}
	compared := 0
	for _, o := range operations {
		m := o
		if m.path, m.body = other.Replace(o.path), other.Replace(o.body); m == o {
			continue
		}
		compared++
		compare(o.method+" "+o.path, answer(o), answer(m))
	}
	if compared < 40 {
		t.Errorf("only %d operations were compared", compared)
	}
	v.likeMissingTools(stranger, other, compare)
}

// likeMissingTools does the same with the tools of MCP.
func (v *victim) likeMissingTools(stranger string, other *strings.Replacer, compare func(what, foreign, missing string)) {
	t := v.T
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, &sdk.StreamableClientTransport{
		Endpoint: v.s.URL() + "/api/sandboxes/mcp", HTTPClient: &http.Client{Transport: keyed{stranger}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tools, err := c.ListTools(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{"sandbox_id": v.sandbox, "snapshot_id": v.snapshot, "build_id": v.build}
	compared := 0
	for _, tool := range tools.Tools {
		var schema struct {
			Properties map[string]struct{ Type any }
			Required   []string
		}
		text, err := json.Marshal(tool.InputSchema)
		if err == nil {
			err = json.Unmarshal(text, &schema)
		}
		if err != nil {
			t.Fatal(err)
		}
		foreign, missing := map[string]any{}, map[string]any{}
		about := false
		for name := range schema.Properties {
			if id := ids[name]; id != "" {
				about = true
				foreign[name], missing[name] = id, other.Replace(id)
			} else if slices.Contains(schema.Required, name) {
				var value any = "x"
				switch schema.Properties[name].Type {
				case "integer", "number":
					value = 1
				case "array":
					value = []any{}
				}
				foreign[name], missing[name] = value, value
			}
		}
		if !about {
			continue
		}
		compared++
		call := func(args map[string]any) string {
			r, err := c.CallTool(ctx, &sdk.CallToolParams{Name: tool.Name, Arguments: args})
			if err != nil {
				return err.Error()
			}
			text, _ := json.Marshal(r)
			return string(text)
		}
		compare(tool.Name, call(foreign), call(missing))
	}
	if compared < 10 {
		t.Errorf("only %d tools were compared", compared)
	}
}

// tricks tries spellings of paths, and headers, that make some servers check one object and return
// another, or act as another user.
func (v *victim) tricks(stranger, before string) {
	t, s := v.T, v.s
	id := v.sandbox
	for _, target := range []string{
		"//v1/sandboxes/" + id, "/v1//sandboxes/" + id, "/v1/../v1/sandboxes/" + id, "/v1/sandboxes/x/../" + id, "/v1/./sandboxes/" + id,
		"/v1/%2e%2e/v1/sandboxes/" + id, "/v1/sandboxes/%2e%2e/sandboxes/" + id, "/v1%2fsandboxes%2f" + id, "/v1/sandboxes%2f" + id, "/v1/sandboxes/" + id + "%2f",
		"/v1/sandboxes/" + id + "%2ffiles?path=/workspace", "/v1/sandboxes/" + id + "/", "/v1/sandboxes/" + id + "/.", "/v1/sandboxes/" + id + ".", "/v1/sandboxes/" + id + "%00",
		"/v1/sandboxes/" + id + "%20", "/v1/sandboxes/" + id + ";a=b", "/V1/sandboxes/" + id, "/v1/SANDBOXES/" + id, "/v1/sandboxes/" + strings.ToUpper(id), "/v1/sandboxes/" + id + "?project=default",
		"/v1/sandboxes/" + id + "?project_id=default&token=" + stranger, "/v1/sandboxes/..%2f..%2fv1%2fsandboxes%2f" + id, "/healthz/../v1/sandboxes/" + id, "/docs/../v1/sandboxes/" + id,
		"/openapi.json/../v1/sandboxes/" + id, "/api/sandboxes/mcp/../../../v1/sandboxes/" + id, "http://" + s.Address + "/v1/sandboxes/" + id, "http://other.example.org/v1/sandboxes/" + id,
		"/v1/sandboxes/" + id + "/files?path=/workspace&path=/", "/v1/sandboxes/" + id + "\\..\\", "/v1/sandboxes/\xff" + id,
	} {
		for _, method := range []string{"GET", "DELETE", "HEAD", "OPTIONS", "PROPFIND", "get"} {
			for _, auth := range [][]string{nil, {bearer(stranger)}} {
				status, header, text := s.ask(t, method, target, "", auth...)
				// A redirect leads to a path that is refused as well.
				if status < 300 || status >= 500 || strings.Contains(text, secretWord) || strings.Contains(header.Get("Location"), "other.example.org") {
					t.Errorf("%s %q: %d %.200s", method, target, status, text)
				}
			}
		}
	}
	object := "/v1/sandboxes/" + id
	for _, headers := range [][]string{
		{"X-Original-URL: " + object}, {"X-Rewrite-URL: " + object}, {"X-Forwarded-Path: " + object}, {"X-HTTP-Method-Override: DELETE"}, {"X-Method-Override: DELETE"},
		{"X-HTTP-Method: DELETE"}, {"X-Forwarded-For: 127.0.0.1"}, {"Forwarded: for=127.0.0.1"}, {"X-Real-IP: 127.0.0.1"}, {"X-Project: default"}, {"X-Project-Id: default"},
		{"X-Forwarded-Host: localhost"}, {"X-Api-Key: " + stranger}, {"Cookie: authorization=Bearer " + stranger + "; bothy_link=x"}, {"X-Authenticated-User: admin"},
		{"Authorization: Basic YWRtaW46YWRtaW4="}, {"Authorization: Bearer"}, {"Authorization: " + s.Key}, {"Authorization: Token " + s.Key}, {"Proxy-Authorization: Bearer " + s.Key},
		{"Authorization: Bearer null"}, {"Authorization: Bearer " + s.Key + " " + stranger}, {"Authorization: Bearer " + s.Key + "\t"}, {"Authorization: Bearer\x00" + s.Key},
		{bearer(stranger), bearer(s.Key)}, {bearer(s.Key), bearer(stranger)}, {bearer(stranger), "authorization: Bearer " + s.Key},
	} {
		if headers[0] == "Authorization: Bearer "+s.Key+"\t" { // white space after a key is ignored
			continue
		}
		for _, method := range []string{"GET", "POST", "DELETE"} {
			all := headers
			if !strings.Contains(strings.ToLower(strings.Join(headers, "\n")), "\nauthorization") && !strings.HasPrefix(headers[0], "Authorization") {
				all = append(slices.Clone(headers), bearer(stranger))
			}
			status, _, text := s.ask(t, method, object, "", all...)
			if status < 400 || status >= 500 || strings.Contains(text, secretWord) {
				t.Errorf("%s with %q: %d %.200s", method, headers, status, text)
			}
		}
	}
	// The owner's key still works, and nothing has changed.
	if status, _, text := s.ask(t, "GET", object, "", bearer(s.Key)); status != 200 || !strings.Contains(text, secretWord) {
		t.Errorf("the owner gets %d", status)
	}
	if after := v.all(); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

// Ten thousand wrong keys neither lock out a right one, nor fill the server's memory or its audit.
func TestTenThousandWrongKeys(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	if _, err := s.Templates.Templates(t.Context()); err != nil {
		t.Fatal(err)
	}
	const attempts, hands = 10000, 16
	wrong := func(n int) {
		var next atomic.Int64
		var wg sync.WaitGroup
		for range hands {
			wg.Go(func() {
				shared := client.WithHTTPClient(&http.Client{Transport: client.Transport()})
				for {
					i := next.Add(1)
					if i > int64(n) {
						return
					}
					key := fmt.Sprintf("bothy_%064x", i*7919)
					c := client.New(s.URL(), key, shared)
					if _, err := c.Limits.Limits(t.Context()); bothy.ErrorCode(err) != bothy.CodeUnauthenticated {
						t.Errorf("a wrong key: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	wrong(1000)
	before := residentKB(t, s.PID())
	done := make(chan struct{})
	good := 0
	go func() {
		defer close(done)
		wrong(attempts)
	}()
	began := time.Now()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if _, err := s.Limits.Limits(t.Context()); err != nil {
			t.Fatalf("a request with a right key meanwhile: %v", err)
		}
		good++
	}
	took := time.Since(began)
	grown := residentKB(t, s.PID()) - before
	t.Logf("%d wrong keys in %s, %.0f a second; %d requests with a right one meanwhile; memory grew by %d KB", attempts, took, attempts/took.Seconds(), good, grown)
	if grown > 64<<10 {
		t.Errorf("the server's memory grew by %d KB", grown)
	}
	p, err := s.Audit.Audit(t.Context(), bothy.AuditFilter{Refused: true, Limit: 1000})
	if err != nil || len(p.Items) == 0 || len(p.Items) > 100 {
		t.Errorf("there are %d audit records, %v", len(p.Items), err)
	}
}

func residentKB(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kb int
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb
}
