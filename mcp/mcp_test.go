package mcp_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/mcp"
)

func services(w *apitest.World) mcp.Services {
	return mcp.Services{Sandboxes: w, Exec: w, Code: w, Files: w.Files(), Snapshots: w, Limits: limits{}, Templates: w, Builder: &apitest.Builder{Made: w.MadeTemplate}, Capturer: w}
}

type limits struct{}

func (limits) Limits(context.Context) (*bothy.PlanLimits, error) {
	five := 5
	return &bothy.PlanLimits{Plan: "pro", Sandboxes: bothy.InUse{Limit: &five, Used: 2}, Sandbox: bothy.PerLimit{CPU: 2, Networks: []bothy.NetworkMode{bothy.NetworkOff}}}, nil
}

// door is an MCP server over HTTP, with a client's session.
type door struct {
	*testing.T
	world  *apitest.World
	tokens *apitest.Tokens
	audits *apitest.Audit
	url    string
	key    string
}

func open(t *testing.T, world *apitest.World) *door {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	tokens := apitest.NewTokens()
	audits := &apitest.Audit{}
	given := services(world)
	given.Recorder = audits
	mux := http.NewServeMux()
	mux.Handle(mcp.Path, mcp.Handler(mcp.New(given, "test", log), tokens, log))
	mux.Handle(mcp.MetadataPath, mcp.Metadata())
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return &door{T: t, world: world, tokens: tokens, audits: audits, url: srv.URL, key: apitest.Admin}
}

type bearer struct{ key string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return http.DefaultTransport.RoundTrip(r)
}

func (d *door) connect(o *sdk.ClientOptions) *sdk.ClientSession {
	d.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o)
	s, err := c.Connect(d.Context(), &sdk.StreamableClientTransport{
		Endpoint: d.url + mcp.Path, HTTPClient: &http.Client{Transport: bearer{d.key}},
	}, nil)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { s.Close() })
	return s
}

func call(t *testing.T, s *sdk.ClientSession, name string, args any) *sdk.CallToolResult {
	t.Helper()
	r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r
}

// must calls a tool, which must succeed, and decodes its result.
func must(t *testing.T, s *sdk.ClientSession, name string, args, out any) *sdk.CallToolResult {
	t.Helper()
	r := call(t, s, name, args)
	if r.IsError {
		t.Fatalf("%s: %s", name, textOf(r))
	}
	b, err := json.Marshal(r.StructuredContent)
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r
}

func textOf(r *sdk.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if x, ok := c.(*sdk.TextContent); ok {
			b.WriteString(x.Text)
		}
	}
	return b.String()
}

type m = map[string]any

func TestToolsAndTheirHints(t *testing.T) {
	s := open(t, apitest.New()).connect(nil)
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range list.Tools {
		names = append(names, x.Name)
		if x.Description == "" || x.Title == "" || x.InputSchema == nil || x.OutputSchema == nil || x.Annotations == nil {
			t.Errorf("%s is not fully described", x.Name)
		}
		for _, schema := range []any{x.InputSchema, x.OutputSchema} {
			if o, _ := schema.(map[string]any); o["type"] != "object" {
				t.Errorf("%s has a schema that is no object's: %v", x.Name, schema)
			}
		}
		if reads := strings.HasPrefix(x.Name, "list_") || strings.HasPrefix(x.Name, "get_") || strings.HasPrefix(x.Name, "read_"); x.Annotations.ReadOnlyHint != reads {
			t.Errorf("%s: read-only is %v", x.Name, !reads)
		}
	}
	want := strings.Fields(`create_sandbox list_sandboxes get_sandbox_limits run_shell run_code wait_for write_file read_file list_files pause_sandbox
		resume_sandbox snapshot_sandbox fork_sandbox rollback_sandbox set_network restart_sandbox terminate_sandbox list_templates build_template get_build create_template`)
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("the tools are %v, want %v", names, want)
	}
}

func TestLifeOfASandbox(t *testing.T) {
	world := apitest.New()
	s := open(t, world).connect(nil)
	var sb struct {
		ID, State, Network string
	}
	must(t, s, "create_sandbox", m{"name": "box", "network": "restricted", "budget": 2.5}, &sb)
	if sb.State != "running" || sb.Network != "restricted" || world.Created.Budget != 2.5 {
		t.Fatalf("created %+v of %+v", sb, world.Created)
	}
	id := m{"sandbox_id": sb.ID}
	var file bothy.FileInfo
	must(t, s, "write_file", m{"sandbox_id": sb.ID, "path": "/workspace/a.txt", "content": "hello\n"}, &file)
	if file.Size != 6 {
		t.Errorf("wrote %+v", file)
	}
	var read struct {
		Encoding, Content string
		Size              int64
		Truncated         bool
	}
	must(t, s, "read_file", m{"sandbox_id": sb.ID, "path": "/workspace/a.txt"}, &read)
	if read.Content != "hello\n" || read.Encoding != "utf-8" || read.Size != 6 || read.Truncated {
		t.Errorf("read %+v", read)
	}
	must(t, s, "read_file", m{"sandbox_id": sb.ID, "path": "/workspace/a.txt", "offset": 1, "limit": 3}, &read)
	if read.Content != "ell" || !read.Truncated {
		t.Errorf("read %+v", read)
	}
	var files struct{ Items []bothy.FileInfo }
	must(t, s, "list_files", m{"sandbox_id": sb.ID, "path": "/workspace"}, &files)
	if len(files.Items) != 1 || files.Items[0].Name != "a.txt" {
		t.Errorf("listed %+v", files)
	}
	var list struct{ Items []struct{ ID string } }
	must(t, s, "list_sandboxes", m{}, &list)
	if len(list.Items) != 1 || list.Items[0].ID != sb.ID {
		t.Errorf("listed %+v", list)
	}
	var waited bothy.WaitResult
	must(t, s, "wait_for", m{"sandbox_id": sb.ID, "log": "line", "path": "a.log"}, &waited)
	if waited.Line != "the line" || waited.TimedOut {
		t.Errorf("waited %+v", waited)
	}
	must(t, s, "set_network", m{"sandbox_id": sb.ID, "network": m{"allow_domains": []string{"api.example.com"}}}, &struct{}{})
	var gone struct {
		State string
		Ended struct{ Reason string }
	}
	must(t, s, "terminate_sandbox", id, &gone)
	if gone.State != "stopped" || gone.Ended.Reason != "terminated" {
		t.Errorf("terminated %+v", gone)
	}
	var l bothy.PlanLimits
	must(t, s, "get_sandbox_limits", m{}, &l)
	if l.Plan != "pro" || *l.Sandboxes.Limit != 5 {
		t.Errorf("limits %+v", l)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	s := open(t, apitest.New()).connect(nil)
	var sb struct{ ID string }
	must(t, s, "create_sandbox", m{}, &sb)
	for _, c := range []struct {
		tool string
		args m
		want []string
	}{
		{"run_shell", m{"sandbox_id": "sbxnone", "command": "true"}, []string{"sandbox_not_found"}},
		{"run_shell", m{"sandbox_id": sb.ID, "command": ""}, []string{"invalid_argument", "ls -l"}},
		{"run_shell", m{"sandbox_id": sb.ID, "command": "true", "max_output_bytes": 1 << 30}, []string{"invalid_argument", "max_output_bytes", "4194304"}},
		{"run_shell", m{"sandbox_id": sb.ID}, []string{"invalid_argument: command is missing", "The arguments are: command, sandbox_id, cwd,"}},
		{"run_shell", m{"sandbox_id": sb.ID, "command": 7}, []string{"command: give a string, not 7"}},
		{"run_shell", m{"sandbox_id": sb.ID, "command": "true", "commando": 1}, []string{"there is no argument commando", "command, sandbox_id, cwd,"}},
		{"create_sandbox", m{"env": m{"A": 1}}, []string{"env.A: give a string, not 1"}},
		{"create_sandbox", m{"memory_mb": 1.5}, []string{"memory_mb: give a whole number, not 1.5"}},
		{"create_sandbox", m{"auto_resume": "yes"}, []string{`auto_resume: give true or false, not "yes"`}},
		{"resume_sandbox", m{"sandbox": sb.ID}, []string{"sandbox_id is missing", "The arguments are: sandbox_id, memory."}},
		{"get_sandbox_limits", m{"of": "me"}, []string{"there is no argument of", "The arguments are: none."}},
		{"write_file", m{"sandbox_id": sb.ID, "path": "x", "content": "%", "encoding": "base64"}, []string{"invalid_argument", "base64"}},
		{"write_file", m{"sandbox_id": sb.ID, "path": "x", "content": "", "encoding": "utf-7"}, []string{"utf-7"}},
		{"write_file", m{"sandbox_id": sb.ID, "path": "x", "content": "", "mode": "rwx"}, []string{"octal"}},
		{"read_file", m{"sandbox_id": sb.ID, "path": "x", "offset": -1}, []string{"offset"}},
		{"list_files", m{"sandbox_id": sb.ID, "depth": 99}, []string{"depth", "32"}},
		{"set_network", m{"sandbox_id": sb.ID, "network": "wide"}, []string{`network: give off, restricted or open, or an object with allow_cidrs, allow_domains, allow_ports, deny_cidrs, mode, presets, not "wide"`}},
		{"create_sandbox", m{"network": m{"allow_domain": []string{"x"}}}, []string{"there is no argument network.allow_domain"}},
		{"create_sandbox", m{"network": m{"mode": "wide"}}, []string{`network.mode: give off, restricted or open, not "wide"`}},
		{"create_sandbox", m{"network": m{"allow_ports": []int{0}}}, []string{"network.allow_ports[0]: give a whole number from 1 to 65535, not 0"}},
	} {
		r := call(t, s, c.tool, c.args)
		got := textOf(r)
		for _, want := range c.want {
			if !r.IsError || !strings.Contains(got, want) {
				t.Errorf("%s %v: got %q (error: %v), want %q in it", c.tool, c.args, got, r.IsError, want)
			}
		}
	}
	for _, c := range bothArguments(sb.ID) {
		if got := textOf(call(t, s, c.tool, c.args)); strings.Contains(got, "schema") || strings.Contains(got, "validat") {
			t.Errorf("%s %v names something unknown: %s", c.tool, c.args, got)
		}
	}
	if r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "format_disk"}); err == nil {
		t.Errorf("an unknown tool answered %s", textOf(r))
	}
}

type toolCall struct {
	tool string
	args any
}

// bothArguments are calls whose arguments are wrong in more than one way.
func bothArguments(id string) []toolCall {
	return []toolCall{
		{"set_network", m{"sandbox_id": id, "network": 7}}, {"set_network", m{"sandbox_id": id, "network": m{"mode": 1, "x": 2}}},
		{"create_sandbox", m{"cpu": "two", "network": []int{1}}}, {"fork_sandbox", m{"sandbox_id": id, "count": "x", "network": nil}},
	}
}

func TestResumeTakesTheSameArgumentAsOtherTools(t *testing.T) {
	s := open(t, apitest.New()).connect(nil)
	var sb struct{ ID, State string }
	must(t, s, "create_sandbox", m{}, &sb)
	for _, name := range []string{"sandbox_id", "id"} { // the latter is the old name
		must(t, s, "pause_sandbox", m{"sandbox_id": sb.ID}, &struct{}{})
		got := textOf(call(t, s, "run_shell", m{"sandbox_id": sb.ID, "command": "true"}))
		if want := `resume_sandbox with sandbox_id "` + sb.ID + `"`; !strings.Contains(got, "sandbox_paused") || !strings.Contains(got, want) || strings.Contains(got, "/v1/") {
			t.Errorf("a paused sandbox says %q", got)
		}
		if must(t, s, "resume_sandbox", m{name: sb.ID}, &sb); sb.State != "running" {
			t.Errorf("resumed by %s it is %s", name, sb.State)
		}
		must(t, s, "pause_sandbox", m{"sandbox_id": sb.ID}, &struct{}{})
		var anew struct{ Resumed struct{ Kind string } }
		if must(t, s, "resume_sandbox", m{name: sb.ID, "memory": false}, &anew); anew.Resumed.Kind != "files" {
			t.Errorf("resumed without memory by %s: %+v", name, anew)
		}
		var n struct{ Kind string }
		if must(t, s, "snapshot_sandbox", m{"sandbox_id": sb.ID, "memory": false}, &n); n.Kind != "files" {
			t.Errorf("a snapshot without memory: %+v", n)
		}
	}
}

func TestEverySchemaHasProperties(t *testing.T) {
	list, err := open(t, apitest.New()).connect(nil).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list.Tools {
		if in, _ := x.InputSchema.(map[string]any); in["properties"] == nil {
			t.Errorf("%s: the schema of its arguments is %v", x.Name, x.InputSchema)
		}
	}
}

func TestALongOutputIsSentOnce(t *testing.T) {
	s := open(t, apitest.New()).connect(nil)
	var sb struct{ ID string }
	must(t, s, "create_sandbox", m{}, &sb)
	long := strings.Repeat("x", 40000)
	var out struct {
		Stdout    string
		Truncated bool
	}
	args := m{"sandbox_id": sb.ID, "command": "echo " + long}
	if r := must(t, s, "run_shell", args, &out); !strings.Contains(textOf(r), long) || len(out.Stdout) > 17000 || !out.Truncated {
		t.Errorf("%d bytes of text, and structured %d, truncated: %v", len(textOf(r)), len(out.Stdout), out.Truncated)
	}
	args["max_output_bytes"] = 60000
	if r := must(t, s, "run_shell", args, &out); !strings.Contains(textOf(r), long) || out.Stdout != long+"\n" || out.Truncated {
		t.Errorf("asked for: %d bytes of text, and structured %d, truncated: %v", len(textOf(r)), len(out.Stdout), out.Truncated)
	}
}

func TestOutputIsTruncatedWithANote(t *testing.T) {
	world := apitest.New()
	s := open(t, world).connect(nil)
	var sb struct{ ID string }
	must(t, s, "create_sandbox", m{}, &sb)
	var out struct {
		Stdout    string
		Truncated bool
	}
	must(t, s, "run_shell", m{"sandbox_id": sb.ID, "command": "echo " + strings.Repeat("x", 1000), "max_output_bytes": 100}, &out)
	if len(out.Stdout) > 200 || !out.Truncated || !strings.Contains(out.Stdout, "bytes left out") {
		t.Errorf("got %+v", out)
	}
}

func TestProgress(t *testing.T) {
	told := make(chan string, 16)
	s := open(t, apitest.New()).connect(&sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { told <- r.Params.Message },
	})
	var sb struct{ ID string }
	must(t, s, "create_sandbox", m{}, &sb)
	p := &sdk.CallToolParams{Name: "run_shell", Arguments: m{"sandbox_id": sb.ID, "command": "echo working"}}
	p.SetProgressToken("p1")
	r, err := s.CallTool(t.Context(), p)
	if err != nil || r.IsError || textOf(r) != "working\n" {
		t.Fatalf("got %v, %v", r, err)
	}
	select {
	case got := <-told:
		if got != "working" {
			t.Errorf("the notification is %q", got)
		}
	case <-time.After(time.Minute):
		t.Error("there was no notification")
	}
}

func TestResources(t *testing.T) {
	s := open(t, apitest.New()).connect(nil)
	var sb struct{ ID string }
	must(t, s, "create_sandbox", m{}, &sb)
	must(t, s, "write_file", m{"sandbox_id": sb.ID, "path": "/workspace/a b.txt", "content": "hi"}, &struct{}{})
	must(t, s, "write_file", m{"sandbox_id": sb.ID, "path": "/workspace/bin", "content": base64.StdEncoding.EncodeToString([]byte{0, 1, 2}), "encoding": "base64"}, &struct{}{})
	read := func(uri string) (*sdk.ResourceContents, error) {
		r, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
		if err != nil {
			return nil, err
		}
		return r.Contents[0], nil
	}
	for uri, want := range map[string]string{
		"bothy://sandboxes":          sb.ID,
		"bothy://sandboxes/" + sb.ID: `"state":"running"`,
		"bothy://sandboxes/" + sb.ID + "/files/workspace/a%20b.txt": "hi",
	} {
		if c, err := read(uri); err != nil || !strings.Contains(c.Text, want) {
			t.Errorf("%s: %+v, %v; want %q in it", uri, c, err, want)
		}
	}
	if c, err := read("bothy://sandboxes/" + sb.ID + "/files/workspace/bin"); err != nil || string(c.Blob) != "\x00\x01\x02" {
		t.Errorf("bytes: %+v, %v", c, err)
	}
	for _, uri := range []string{"bothy://sandboxes/sbxnone", "bothy://sandboxes/" + sb.ID + "/files/none", "bothy://else"} {
		if c, err := read(uri); err == nil {
			t.Errorf("%s is %+v", uri, c)
		}
	}
}

func (d *door) post(header http.Header) *http.Response {
	d.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	r, _ := http.NewRequestWithContext(d.Context(), http.MethodPost, d.url+mcp.Path, strings.NewReader(body))
	r.Header = header
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { res.Body.Close() })
	return res
}

func TestDoorIsGuarded(t *testing.T) {
	d := open(t, apitest.New())
	none := d.post(http.Header{})
	if none.StatusCode != 401 || !strings.Contains(none.Header.Get("WWW-Authenticate"), d.url+mcp.MetadataPath) {
		t.Errorf("without a key: %d, %v", none.StatusCode, none.Header)
	}
	if r := d.post(http.Header{"Authorization": {"Bearer bothy_0000"}}); r.StatusCode != 401 {
		t.Errorf("with a forged key: %d", r.StatusCode)
	}
	key := http.Header{"Authorization": {"Bearer " + d.key}}
	if r := d.post(key.Clone()); r.StatusCode != 200 {
		t.Errorf("with a key: %d", r.StatusCode)
	}
	if r := d.post(http.Header{"Authorization": {"Bearer " + d.key, "Bearer " + d.key}}); r.StatusCode != 401 {
		t.Errorf("with two keys: %d", r.StatusCode)
	}
	evil := key.Clone()
	evil.Set("Origin", "https://evil.example")
	if r := d.post(evil); r.StatusCode != 403 {
		t.Errorf("from another site's page: %d", r.StatusCode)
	}
	res, err := http.Get(d.url + mcp.MetadataPath)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var meta struct {
		Resource string
		Scopes   []string `json:"scopes_supported"`
	}
	if err := json.NewDecoder(res.Body).Decode(&meta); err != nil || meta.Resource != d.url+mcp.Path || len(meta.Scopes) != len(bothy.AllScopes) {
		t.Errorf("metadata %+v, %v", meta, err)
	}
}

// A read-only key can only read, and a revoked key can do nothing more, even if its session is open.
func TestKeysAreEnforced(t *testing.T) {
	d := open(t, apitest.New())
	admin, err := d.tokens.Authenticate(t.Context(), d.key)
	if err != nil {
		t.Fatal(err)
	}
	token, err := d.tokens.CreateToken(bothy.WithCaller(t.Context(), admin), bothy.TokenCreate{Scopes: []bothy.Scope{bothy.ScopeSandboxesRead}})
	if err != nil {
		t.Fatal(err)
	}
	d.key = token.Key
	s := d.connect(nil)
	if r := call(t, s, "list_sandboxes", m{}); r.IsError {
		t.Errorf("listing: %s", textOf(r))
	}
	if r := call(t, s, "create_sandbox", m{}); !r.IsError || !strings.Contains(textOf(r), "missing_scope") {
		t.Errorf("creating: %s", textOf(r))
	}
	if err := d.tokens.DeleteToken(bothy.WithCaller(t.Context(), admin), token.ID); err != nil {
		t.Fatal(err)
	}
	if r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "list_sandboxes", Arguments: m{}}); err == nil {
		t.Errorf("with a revoked key: %s", textOf(r))
	}
}
