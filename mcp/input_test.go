package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/mcp"
)

// revisions are the supported revisions of the protocol.
var revisions = []string{"2025-06-18", "2025-11-25", "2026-07-28"}

// speak connects with a revision of the protocol.
func (d *door) speak(revision string) *sdk.ClientSession {
	d.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(d.Context(), &sdk.StreamableClientTransport{
		Endpoint: d.url + mcp.Path, HTTPClient: &http.Client{Transport: bearer{d.key}},
	}, &sdk.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		d.Fatalf("%s: %v", revision, err)
	}
	d.Cleanup(func() { s.Close() })
	return s
}

func TestEveryRevisionDoesTheWork(t *testing.T) {
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			d := open(t, apitest.New())
			s := d.speak(revision)
			if got := s.InitializeResult().ProtocolVersion; got != revision {
				t.Fatalf("the server speaks %s", got)
			}
			list, err := s.ListTools(t.Context(), nil)
			if err != nil || len(list.Tools) != 21 {
				t.Fatalf("%d tools, %v", len(list.Tools), err)
			}
			var sb bothy.Sandbox
			must(t, s, "create_sandbox", m{"name": "box"}, &sb)
			var ran struct{ Stdout string }
			must(t, s, "run_shell", m{"sandbox_id": sb.ID, "command": "echo hi"}, &ran)
			if ran.Stdout != "hi\n" {
				t.Errorf("ran %+v", ran)
			}
			if r := call(t, s, "run_shell", m{"sandbox_id": "sbx-none", "command": "echo hi"}); !r.IsError || !strings.Contains(textOf(r), "sandbox_not_found") {
				t.Errorf("in no sandbox: %s", textOf(r))
			}
			res, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "bothy://sandboxes/" + sb.ID})
			if err != nil || len(res.Contents) != 1 || !strings.Contains(res.Contents[0].Text, sb.ID) {
				t.Errorf("as a resource: %+v, %v", res, err)
			}
			var gone struct{ State string }
			must(t, s, "terminate_sandbox", m{"sandbox_id": sb.ID}, &gone)
			if gone.State != "stopped" {
				t.Errorf("ended as %+v", gone)
			}
		})
	}
}

// raw sends a message literally, in the revision without sessions, and returns the status and the answer.
func (d *door) raw(ctx context.Context, body io.Reader, header ...string) (int, string) {
	d.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+mcp.Path, body)
	if err != nil {
		d.Fatal(err)
	}
	r.Header = http.Header{
		"Authorization": {"Bearer " + d.key}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"},
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		d.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		d.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// For any wrong arguments the model is told what is wrong, and nothing is done.
func TestWrongArguments(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			d := open(t, apitest.New())
			s := d.speak(revision)
			var sb bothy.Sandbox
			must(t, s, "create_sandbox", m{}, &sb)
			for name, arguments := range map[string][]string{
				"create_sandbox": {`{"cpu":"two"}`, `{"budget":"2.50"}`, `{"memory_mb":1.5}`, `{"network":7}`, `{"network":{"mode":"restricted","allow_ports":["x"]}}`, `{"env":{"A":1}}`,
					`{"timeout_seconds":"never"}`, `{"surprise":true}`, `{"metadata":[]}`, `{"name":null,"size":{}}`},
				"run_shell": {`{}`, `{"sandbox_id":"ID"}`, `{"sandbox_id":7,"command":"echo"}`, `{"sandbox_id":"ID","command":["echo"]}`, `{"sandbox_id":"ID","command":""}`,
					`{"sandbox_id":"ID","command":"echo","timeout_seconds":"soon"}`, `{"sandbox_id":"ID","command":"echo","max_output_bytes":-1}`,
					`{"sandbox_id":"ID","command":"echo","max_output_bytes":1e30}`, `{"sandbox_id":"ID","command":"echo","env":"A=1"}`, `[]`, `"ID"`, `7`, `true`},
				"run_code":        {`{"sandbox_id":"ID"}`, `{"sandbox_id":"ID","code":1}`, `{"sandbox_id":"ID","code":"1","context_id":[]}`},
				"write_file":      {`{"sandbox_id":"ID","path":"/a"}`, `{"sandbox_id":"ID","path":"/a","content":{}}`, `{"sandbox_id":"ID","path":"/a","content":"!","encoding":"base64"}`, `{"sandbox_id":"ID","path":"/a","content":"x","mode":"rwx"}`},
				"read_file":       {`{"sandbox_id":"ID","path":"/a","offset":-1}`, `{"sandbox_id":"ID","path":"/a","limit":1e12}`, `{"sandbox_id":"ID","path":["/a"]}`},
				"list_files":      {`{"sandbox_id":"ID","depth":99}`, `{"sandbox_id":"ID","depth":"x"}`},
				"fork_sandbox":    {`{"sandbox_id":"ID","count":"x"}`, `{"sandbox_id":"ID","count":1.5}`},
				"set_network":     {`{"sandbox_id":"ID"}`, `{"sandbox_id":"ID","network":"everything"}`, `{"sandbox_id":"ID","network":[]}`},
				"build_template":  {`{}`, `{"name":"a"}`, `{"name":"a","dockerfile":["FROM b"]}`, `{"name":"a","dockerfile":"FROM b","args":{"A":1}}`, `{"name":"a","dockerfile":"FROM b","start":"serve"}`},
				"get_build":       {`{}`, `{"build_id":7}`, `{"build_id":"bld_none"}`},
				"create_template": {`{}`, `{"sandbox_id":"ID"}`, `{"sandbox_id":"ID","name":7}`, `{"sandbox_id":"ID","name":"a","memory":"yes"}`},
				"no_such_tool":    {`{}`},
				"":                {`{}`},
			} {
				for _, a := range append(arguments, deep) {
					a = strings.ReplaceAll(a, "ID", sb.ID)
					r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(a)})
					if err == nil && (!r.IsError || len(textOf(r)) < 10) {
						t.Errorf("%s(%.80s) is not refused: %s", name, a, textOf(r))
					}
					if err == nil && strings.Contains(textOf(r), "internal") || err != nil && strings.Contains(err.Error(), "internal") {
						t.Errorf("%s(%.80s) is called a failure of the server: %v %v", name, a, r, err)
					}
				}
			}
			var list struct{ Items []bothy.Sandbox }
			must(t, s, "list_sandboxes", m{}, &list)
			if len(list.Items) != 1 || list.Items[0].State != bothy.StateRunning {
				t.Errorf("after all that there are %+v", list.Items)
			}
		})
	}
}

// Invalid messages are refused as well, and too large ones before they are read.
func TestWrongMessages(t *testing.T) {
	d := open(t, apitest.New())
	for _, body := range []string{
		"", "no", "[]", "{}", "null", `{"jsonrpc":"1.0","id":1,"method":"tools/call"}`, `{"jsonrpc":"2.0","id":{},"method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"method":7}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}`, "\xff\xfe", strings.Repeat("[", 100000),
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}`, `{"jsonrpc":"2.0","id":1,"method":"no/such"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_shell","arguments":` + strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000) + "}}",
	} {
		for _, revision := range revisions {
			status, text := d.raw(t.Context(), strings.NewReader(body), "Mcp-Protocol-Version", revision)
			if status >= 500 || status < 300 && !strings.Contains(text, `"error"`) {
				t.Errorf("%s %.60q: %d %.200s", revision, body, status, text)
			}
		}
	}
	huge := io.MultiReader(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_shell","arguments":{"command":"`),
		io.LimitReader(endless{}, 40<<20), strings.NewReader(`"}}}`))
	if status, _ := d.raw(t.Context(), huge); status != http.StatusRequestEntityTooLarge {
		t.Errorf("40 MiB of arguments: %d", status)
	}
	// A large message within the limit passes.
	s := d.connect(nil)
	var sb bothy.Sandbox
	must(t, s, "create_sandbox", m{}, &sb)
	var file bothy.FileInfo
	must(t, s, "write_file", m{"sandbox_id": sb.ID, "path": "/workspace/big", "content": strings.Repeat("x", 20<<20)}, &file)
	if file.Size != 20<<20 {
		t.Errorf("wrote %+v", file)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// A client that leaves during a command ends it, however it leaves.
func TestLeavingEndsTheCommand(t *testing.T) {
	for _, revision := range revisions {
		for _, telling := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s telling %v", revision, telling), func(t *testing.T) {
				d := open(t, apitest.New())
				s := d.speak(revision)
				var sb bothy.Sandbox
				must(t, s, "create_sandbox", m{}, &sb)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan struct{})
				go func() {
					defer close(done)
					if telling { // the client cancels as the protocol has it
						_, _ = s.CallTool(ctx, &sdk.CallToolParams{Name: "run_shell", Arguments: m{"sandbox_id": sb.ID, "command": "wait"}})
						return
					}
					d.hangUp(ctx, revision, s.ID(), sb.ID)
				}()
				for !d.world.Started("wait") {
					select {
					case <-done:
						t.Fatal("the call is over before its time")
					case <-time.After(time.Millisecond):
					}
				}
				cancel()
				select {
				case id := <-d.world.Canceled:
					if id != sb.ID {
						t.Errorf("the command of %s was ended", id)
					}
				case <-time.After(time.Minute):
					t.Error("the command continues")
				}
				<-done
				var ran struct{ Stdout string }
				must(t, s, "run_shell", m{"sandbox_id": sb.ID, "command": "echo hi"}, &ran)
			})
		}
	}
}

// A program that is stopped, like `bothy mcp` by SIGTERM, ends its calls.
func TestTheEndOfServeEndsItsCalls(t *testing.T) {
	server := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	begun, over := make(chan struct{}), make(chan struct{})
	sdk.AddTool(server, &sdk.Tool{Name: "wait"}, func(ctx context.Context, _ *sdk.CallToolRequest, _ m) (*sdk.CallToolResult, any, error) {
		close(begun)
		<-ctx.Done()
		close(over)
		return nil, nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	ours, theirs := sdk.NewInMemoryTransports()
	served := make(chan error, 1)
	go func() { served <- mcp.Serve(ctx, server, ours) }()
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = s.CallTool(t.Context(), &sdk.CallToolParams{Name: "wait", Arguments: m{}}) }()
	<-begun
	cancel()
	for _, end := range []func() bool{
		func() bool {
			select {
			case <-over:
				return true
			case <-time.After(time.Minute):
				return false
			}
		},
		func() bool {
			select {
			case <-served:
				return true
			case <-time.After(time.Minute):
				return false
			}
		},
	} {
		if !end() {
			t.Fatal("the call, or the server, continues")
		}
	}
}

// hangUp calls wait, and cuts the connection when ctx ends.
func (d *door) hangUp(ctx context.Context, revision, session, sandbox string) {
	params := m{"name": "run_shell", "arguments": m{"sandbox_id": sandbox, "command": "wait"}}
	if revision >= "2026" {
		params["_meta"] = m{
			"io.modelcontextprotocol/protocolVersion": revision, "io.modelcontextprotocol/clientCapabilities": m{},
			"io.modelcontextprotocol/clientInfo": m{"name": "t", "version": "1"},
		}
	}
	body, _ := json.Marshal(m{"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params})
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, d.url+mcp.Path, strings.NewReader(string(body)))
	r.Header = http.Header{
		"Authorization": {"Bearer " + d.key}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {revision}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"run_shell"},
	}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return
	}
	defer res.Body.Close()
	for in := bufio.NewScanner(res.Body); in.Scan(); {
	}
}

// Calls are recorded with their caller, action, target and outcome.
func TestCallsAreRecorded(t *testing.T) {
	d := open(t, apitest.New())
	s := d.connect(nil)
	var sb bothy.Sandbox
	must(t, s, "create_sandbox", m{"env": m{"KEY": "s3cret"}}, &sb)
	call(t, s, "run_shell", m{"sandbox_id": sb.ID, "command": "echo hi", "stdin": "s3cret"})
	call(t, s, "run_code", m{"sandbox_id": sb.ID, "code": "1+1"})
	call(t, s, "write_file", m{"sandbox_id": sb.ID, "path": "/workspace/a", "content": "s3cret"})
	call(t, s, "read_file", m{"sandbox_id": sb.ID, "path": "/workspace/a"})
	call(t, s, "list_sandboxes", m{})
	call(t, s, "run_shell", m{"sandbox_id": sb.ID, "command": 7})
	d.key = apitest.Stranger
	call(t, d.connect(nil), "list_files", m{"sandbox_id": sb.ID})
	d.key = apitest.Reader
	call(t, d.connect(nil), "terminate_sandbox", m{"sandbox_id": sb.ID})
	want := []bothy.AuditRecord{
		{Action: "mcp:create_sandbox", SandboxID: sb.ID, TokenID: "tok_admin", ProjectID: "default", Status: 200},
		{Action: "mcp:run_shell", SandboxID: sb.ID, Command: "echo hi", TokenID: "tok_admin", ProjectID: "default", Status: 200},
		{Action: "mcp:run_code", SandboxID: sb.ID, Command: "1+1", TokenID: "tok_admin", ProjectID: "default", Status: 200},
		{Action: "mcp:write_file", SandboxID: sb.ID, Object: "/workspace/a", TokenID: "tok_admin", ProjectID: "default", Status: 200},
		{Action: "mcp:read_file", SandboxID: sb.ID, Object: "/workspace/a", TokenID: "tok_admin", ProjectID: "default", Status: 200},
		{Action: "mcp:run_shell", SandboxID: sb.ID, TokenID: "tok_admin", ProjectID: "default", Status: 400, Code: bothy.CodeInvalid},
		{Action: "mcp:list_files", SandboxID: sb.ID, TokenID: "tok_stranger", ProjectID: "other", Status: 404, Code: bothy.CodeSandboxNotFound},
		{Action: "mcp:terminate_sandbox", SandboxID: sb.ID, TokenID: "tok_reader", ProjectID: "default", Status: 403, Code: bothy.CodeForbidden},
	}
	var got []bothy.AuditRecord
	for _, r := range d.audits.Records() {
		if r.Time.IsZero() {
			t.Errorf("no time: %+v", r)
		}
		r.ID, r.Time, r.DurationMS = 0, time.Time{}, 0
		got = append(got, r)
	}
	if !slices.Equal(got, want) {
		t.Errorf("recorded\n%+v, want\n%+v", got, want)
	}
	d.audits.SetFull(bothy.Errorf(bothy.CodeCapacity, "the disk is full").WithHint("Make room."))
	if r := call(t, s, "run_shell", m{"sandbox_id": sb.ID, "command": "echo unseen"}); !r.IsError || !strings.Contains(textOf(r), "capacity") || d.world.Started("echo unseen") {
		t.Errorf("what cannot be recorded: %s", textOf(r))
	}
}
