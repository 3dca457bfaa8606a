package api

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/openapi"
	"github.com/bothy-dev/bothy/api/problem"
	"github.com/bothy-dev/bothy/api/rest"
)

var asEvents = header{"Accept": "text/event-stream"}

// events returns the blocks of a stream without comments.
func eventsOf(text string) []string {
	var out []string
	for _, block := range strings.Split(text, "\n\n") {
		if block != "" && !strings.HasPrefix(block, ":") {
			out = append(out, block)
		}
	}
	return out
}

func TestExecAnswers(t *testing.T) {
	f := start(t)
	path := f.create() + "/exec"
	res := f.ok(200, f.do("POST", path, `{"command":"echo <hi>"}`))
	want := `{"exit_code":0,"stdout":"<hi>\n","stderr":"","duration_ms":12,"timed_out":false,"oom_killed":false,"truncated":false,"pid":7}`
	if strings.TrimSpace(res.body) != want {
		t.Errorf("got  %s\nwant %s", res.body, want)
	}
	r := decode[bothy.ExecResult](f, f.ok(200, f.do("POST", path, `{"command":["fail"]}`)))
	if r.ExitCode != 3 || r.Stderr != "it failed\n" {
		t.Errorf("%+v", r)
	}
}

func TestExecEvents(t *testing.T) {
	f := start(t)
	path := f.create() + "/exec"
	res := f.ok(200, f.do("POST", path, `{"command":"echo <hi>"}`, asEvents))
	want := []string{
		`data: {"stream":"stdout","data":"<hi>\n","offset":0}`,
		`data: {"pid":7,"is_final":true,"exit_code":0,"duration_ms":12,"timed_out":false,"oom_killed":false,"truncated":false}`,
	}
	if got := eventsOf(res.body); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if ct := res.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Errorf("content type %q", ct)
	}
}

// Before the first event a failure has its own status; after it, an event.
func TestExecEventFailures(t *testing.T) {
	f := start(t)
	f.failed(bothy.CodeSandboxNotFound, f.do("POST", "/v1/sandboxes/none/exec", `{"command":"echo"}`, asEvents))
	path := f.create() + "/exec"
	f.failed(bothy.CodeInvalid, f.do("POST", path, `{"command":"echo","background":true}`, asEvents))
	f.failed(bothy.CodeInvalid, f.do("POST", path, `{}`, asEvents))
	res := f.ok(200, f.do("POST", path, `{"command":"lost"}`, asEvents))
	got := eventsOf(res.body)
	if len(got) != 2 || !strings.HasPrefix(got[1], "event: error\ndata: ") {
		t.Fatalf("%q", got)
	}
	var p problem.Problem
	if err := json.Unmarshal([]byte(strings.TrimPrefix(got[1], "event: error\ndata: ")), &p); err != nil || p.Code != bothy.CodeGuest || p.Status != 502 {
		t.Errorf("%q: %+v, %v", got[1], p, err)
	}
}

// Events are sent when they happen, and a command ends when its caller disconnects.
func TestExecStreamsLive(t *testing.T) {
	f := start(t, func(s *setup) { s.config.times = rest.Times{FirstBeat: time.Hour, Beats: time.Hour} })
	path := f.create()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res := f.open(ctx, "POST", path+"/exec", `{"command":"wait"}`, asEvents)
	line, err := bufio.NewReader(res.Body).ReadString('\n')
	if err != nil || line != "data: {\"stream\":\"stdout\",\"data\":\"ready\\n\",\"offset\":0}\n" {
		t.Fatalf("%q, %v", line, err)
	}
	select {
	case <-f.world.Canceled:
		t.Fatal("the command ended by itself")
	default:
	}
	cancel()
	if id := <-f.world.Canceled; !strings.HasSuffix(path, id) {
		t.Errorf("canceled in %s", id)
	}
}

func TestBlockingExecEndsWithItsCaller(t *testing.T) {
	f := start(t)
	path := f.create()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := f.client.Do(f.request("POST", path+"/exec", `{"command":"wait"}`).WithContext(ctx))
		done <- err
	}()
	for !f.world.Started("wait") {
		runtime.Gosched()
	}
	cancel()
	<-f.world.Canceled
	if <-done == nil {
		t.Error("the call was answered")
	}
	for !strings.Contains(f.logged.String(), `"status":499`) { // the line comes after the end
		runtime.Gosched()
	}
	if strings.Contains(f.logged.String(), `"level":"ERROR"`) {
		t.Errorf("a caller that left is logged as our failure: %s", f.logged)
	}
}

func TestQuietStreamsSendHeartbeats(t *testing.T) {
	f := start(t, func(s *setup) { s.config.times = rest.Times{FirstBeat: time.Millisecond, Beats: time.Millisecond} })
	res := f.open(t.Context(), "GET", "/v1/events", nil, asEvents)
	r := bufio.NewReader(res.Body)
	for range 3 {
		if line, err := r.ReadString('\n'); err != nil || line != ":\n" {
			t.Fatalf("%q, %v", line, err)
		}
		if line, err := r.ReadString('\n'); err != nil || line != "\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
}

func TestEvents(t *testing.T) {
	f := start(t)
	for range 3 {
		f.create()
	}
	p := decode[bothy.Page[bothy.Event]](f, f.ok(200, f.do("GET", "/v1/events?limit=2", nil)))
	if len(p.Items) != 2 || p.NextCursor != "2" || p.Items[0].Type != bothy.EventSandboxCreated {
		t.Fatalf("%+v", p)
	}
	p = decode[bothy.Page[bothy.Event]](f, f.ok(200, f.do("GET", "/v1/events?limit=2&since="+p.NextCursor, nil)))
	if len(p.Items) != 1 || p.NextCursor != "" {
		t.Fatalf("%+v", p)
	}
	res := f.open(t.Context(), "GET", "/v1/events?since=1", nil, asEvents, header{"Last-Event-ID": "2"})
	r := bufio.NewReader(res.Body)
	if line, err := r.ReadString('\n'); err != nil || line != "id: 3\n" {
		t.Fatalf("%q, %v", line, err)
	}
	f.create()
	text := ""
	for !strings.Contains(text, "id: 4\n") {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		text += line
	}
}

func TestProcesses(t *testing.T) {
	f := start(t)
	path := f.create()
	r := decode[bothy.ExecResult](f, f.ok(200, f.do("POST", path+"/exec", `{"command":"cat","background":true}`)))
	if r.PID != 100 {
		t.Fatalf("%+v", r)
	}
	process := path + "/processes/100"
	f.ok(204, f.do("POST", process+"/stdin", `{"data":"hello "}`))
	f.ok(204, f.do("POST", process+"/stdin", `{"data":"d29ybGQ=","encoding":"base64"}`))
	list := decode[openapi.Items[bothy.ProcessInfo]](f, f.ok(200, f.do("GET", path+"/processes", nil)))
	if len(list.Items) != 1 || !list.Items[0].Running || list.Items[0].OutputEnd != 11 {
		t.Fatalf("%+v", list)
	}
	f.ok(204, f.do("POST", process+"/stdin", `{"eof":true}`))
	res := f.ok(200, f.do("GET", process+"/output?from=6", nil))
	if got := eventsOf(res.body); len(got) != 2 || got[0] != `data: {"stream":"stdout","data":"world","offset":6}` || !strings.Contains(got[1], `"exit_code":0`) {
		t.Errorf("%q", got)
	}
	for body, exit := range map[string]string{`{"signal":"SIGINT"}`: "130", `{"signal":"TERM"}`: "143", `{"signal":12}`: "140"} {
		f.ok(204, f.do("POST", process+"/signal", body))
		if res := f.do("GET", process+"/output", nil); !strings.Contains(res.body, `"exit_code":`+exit) {
			t.Errorf("%s: %s", body, res.body)
		}
	}
	f.ok(204, f.do("DELETE", process, nil))
	if res := f.do("GET", process+"/output", nil); !strings.Contains(res.body, `"exit_code":137`) {
		t.Errorf("%s", res.body)
	}
	f.failed(bothy.CodeProcessNotFound, f.do("GET", path+"/processes/1/output", nil))
	f.failed(bothy.CodeProcessNotFound, f.do("DELETE", path+"/processes/1", nil))
}

func TestCode(t *testing.T) {
	f := start(t)
	path := f.create()
	res := f.ok(200, f.do("POST", path+"/code", `{"code":"1+1","language":"python"}`))
	want := `{"results":[{"text/plain":"1+1"}],"stdout":"python\n","stderr":"","execution_count":1,"duration_ms":5,"context_id":""}`
	if strings.TrimSpace(res.body) != want {
		t.Errorf("got  %s\nwant %s", res.body, want)
	}
	raised := f.ok(200, f.do("POST", path+"/code", `{"code":"raise"}`))
	if !strings.Contains(raised.body, `"results":[]`) || !strings.Contains(raised.body, `"error":{"name":"ValueError","value":"v","traceback":"t"}`) {
		t.Errorf("%s", raised.body)
	}
	got := eventsOf(f.ok(200, f.do("POST", path+"/code", `{"code":"x","language":"bash"}`, asEvents)).body)
	if len(got) != 3 || got[0] != `data: {"stream":"stdout","data":"bash\n"}` || got[1] != `data: {"results":[{"text/plain":"x"}]}` ||
		got[2] != `data: {"is_final":true,"execution_count":1,"duration_ms":5}` {
		t.Errorf("%q", got)
	}
	f.failed(bothy.CodeInvalid, f.do("POST", path+"/code", `{"code":"x","language":"cobol"}`))
	f.failed(bothy.CodeContextNotFound, f.do("POST", path+"/code", `{"code":"x","context_id":"none"}`, asEvents))
	c := decode[bothy.CodeContext](f, f.ok(201, f.do("POST", path+"/contexts", nil)))
	if list := decode[openapi.Items[bothy.CodeContext]](f, f.ok(200, f.do("GET", path+"/contexts", nil))); len(list.Items) != 1 {
		t.Errorf("%+v", list)
	}
	f.ok(204, f.do("POST", path+"/contexts/"+c.ID+"/interrupt", nil))
	f.ok(204, f.do("POST", path+"/contexts/"+c.ID+"/restart", nil))
	f.ok(204, f.do("DELETE", path+"/contexts/"+c.ID, nil))
	if got := strings.Join(f.world.Done, ", "); got != "interrupt ctx-0002, restart ctx-0002, delete ctx-0002" {
		t.Errorf("%s", got)
	}
	f.failed(bothy.CodeContextNotFound, f.do("DELETE", path+"/contexts/"+c.ID, nil))
}

func TestShells(t *testing.T) {
	f := start(t)
	path := f.create() + "/shells"
	shell := decode[bothy.Shell](f, f.ok(201, f.do("POST", path, `{"cwd":"/tmp"}`)))
	list := decode[openapi.Items[bothy.Shell]](f, f.ok(200, f.do("GET", path, nil)))
	if len(list.Items) != 1 || list.Items[0] != shell || shell.Cwd != "/tmp" {
		t.Fatalf("%+v, %+v", shell, list)
	}
	path += "/" + shell.ID
	ran := decode[bothy.ShellResult](f, f.ok(200, f.do("POST", path+"/exec", `{"command":"ls","timeout_seconds":3}`)))
	want := bothy.CodeRequest{Code: "ls", Language: "bash", ContextID: shell.ID, TimeoutSeconds: 3}
	if ran.Stdout != "bash\n" || ran.ExitCode != 0 || f.world.Ran.Code != want.Code || f.world.Ran.ContextID != want.ContextID || f.world.Ran.TimeoutSeconds != 3 {
		t.Errorf("%+v, %+v", ran, f.world.Ran)
	}
	got := eventsOf(f.ok(200, f.do("POST", path+"/exec", `{"command":"raise"}`, asEvents)).body)
	if last := got[len(got)-1]; !strings.Contains(last, `"is_final":true`) || !strings.Contains(last, `"exit_code":1`) {
		t.Errorf("%q", got)
	}
	f.failed(bothy.CodeInvalid, f.do("POST", path+"/exec", `{"command":""}`))
	f.ok(200, f.do("POST", strings.Replace(path, shell.ID, "default", 1)+"/exec", `{"command":"ls"}`))
	if f.world.Ran.ContextID != "" || f.world.Ran.Language != "bash" {
		t.Errorf("the default shell: %+v", f.world.Ran)
	}
	f.ok(204, f.do("POST", path+"/interrupt", nil))
	f.ok(204, f.do("POST", path+"/restart", nil))
	f.ok(204, f.do("DELETE", path, nil))
	f.failed(bothy.CodeContextNotFound, f.do("POST", path+"/exec", `{"command":"ls"}`))
}

func TestNetworkLog(t *testing.T) {
	f := start(t)
	path := f.create() + "/network/log"
	all := decode[openapi.Items[bothy.NetworkDecision]](f, f.ok(200, f.do("GET", path, nil)))
	if len(all.Items) != 2 || !all.Items[0].Allowed || all.Items[1].Reason == "" {
		t.Fatalf("%+v", all)
	}
	all = decode[openapi.Items[bothy.NetworkDecision]](f, f.ok(200, f.do("GET", path+"?since=2026-03-01T12:00:30Z", nil)))
	if len(all.Items) != 1 {
		t.Fatalf("%+v", all)
	}
	res := f.open(t.Context(), "GET", path, nil, asEvents)
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"name":"a.example.com"`) {
		t.Errorf("%q, %v", line, err)
	}
}

func TestTemplates(t *testing.T) {
	f := start(t)
	list := decode[openapi.Items[*bothy.Template]](f, f.ok(200, f.do("GET", "/v1/templates", nil)))
	if len(list.Items) != 1 || list.Items[0].Name != bothy.DefaultTemplate {
		t.Fatalf("%+v", list)
	}
	res := f.ok(200, f.do("POST", "/v1/templates", `{"name":"mine","image":"debian"}`, asEvents))
	got := eventsOf(res.body)
	if len(got) != 2 || got[0] != `data: {"step":"fetch","percent":10}` || !strings.Contains(got[1], `"template":{"version":1,"name":"mine"`) {
		t.Errorf("%q", got)
	}
	built := decode[bothy.Template](f, f.ok(201, f.do("POST", "/v1/templates", `{"name":"other"}`)))
	if built.Name != "other" {
		t.Errorf("%+v", built)
	}
	f.failed(bothy.CodeTemplateInvalid, f.do("POST", "/v1/templates", `{"name":"bad"}`))
	res = f.ok(200, f.do("POST", "/v1/templates", `{"name":"bad"}`, asEvents))
	if got := eventsOf(res.body); len(got) != 2 || !strings.Contains(got[1], `"code":"template_invalid"`) {
		t.Errorf("%q", got)
	}
	f.ok(204, f.do("DELETE", "/v1/templates/mine", nil))
	f.failed(bothy.CodeTemplateNotFound, f.do("GET", "/v1/templates/mine", nil))
}

func TestSnapshotCalls(t *testing.T) {
	f := start(t)
	path := f.create()
	paused := decode[rest.Paused](f, f.ok(200, f.do("POST", path+"/pause", nil)))
	if paused.SnapshotID == "" || paused.Snapshot.ID != paused.SnapshotID || paused.Snapshot.Kind != bothy.SnapshotMemory {
		t.Fatalf("%+v", paused)
	}
	f.failed(bothy.CodeSandboxPaused, f.do("POST", path+"/exec", `{"command":"echo"}`))
	f.failed(bothy.CodeSnapshotInUse, f.do("DELETE", "/v1/snapshots/"+paused.SnapshotID, nil))
	if b := decode[bothy.Sandbox](f, f.ok(200, f.do("POST", path+"/resume", nil))); b.State != bothy.StateRunning {
		t.Fatalf("%+v", b)
	}
	paused = decode[rest.Paused](f, f.ok(200, f.do("POST", path+"/pause", `{"memory":false,"name":"n"}`)))
	if paused.Snapshot.Kind != bothy.SnapshotFiles || paused.Snapshot.Name != "n" {
		t.Fatalf("%+v", paused)
	}
	f.ok(200, f.do("POST", "/v1/snapshots/"+paused.SnapshotID+"/resume", nil))
	live := decode[bothy.Snapshot](f, f.ok(201, f.do("POST", path+"/snapshots", `{"name":"live"}`)))
	p := decode[bothy.Page[*bothy.Snapshot]](f, f.ok(200, f.do("GET", "/v1/snapshots?name=live", nil)))
	if len(p.Items) != 1 || p.Items[0].ID != live.ID {
		t.Fatalf("%+v", p)
	}
	forks := decode[openapi.Items[*bothy.Sandbox]](f, f.ok(201, f.do("POST", path+"/fork", `{"count":3,"name":"c"}`)))
	if len(forks.Items) != 3 || forks.Items[0].Name != "c" || forks.Items[0].ParentSandboxID == "" || forks.Items[0].ForkedAt == nil {
		t.Fatalf("%+v", forks)
	}
	if forks = decode[openapi.Items[*bothy.Sandbox]](f, f.ok(201, f.do("POST", path+"/fork", nil))); len(forks.Items) != 1 {
		t.Fatalf("%+v", forks)
	}
	if b := decode[bothy.Sandbox](f, f.ok(200, f.do("POST", path+"/rollback", map[string]string{"snapshot_id": live.ID}))); b.ParentSnapshotID != live.ID {
		t.Fatalf("%+v", b)
	}
	f.ok(204, f.do("DELETE", "/v1/snapshots/"+live.ID, nil))
}

func (f *fixture) dial(path string) (*websocket.Conn, *http.Response) {
	f.Helper()
	conn, res, err := websocket.Dial(f.Context(), f.URL()+path, &websocket.DialOptions{
		HTTPClient: f.client, HTTPHeader: http.Header{"Authorization": {"Bearer " + f.key}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { conn.CloseNow() })
	return conn, res
}

// readUntil collects binary frames until the text is in them.
func readUntil(t *testing.T, conn *websocket.Conn, text string) string {
	t.Helper()
	got := ""
	for !strings.Contains(got, text) {
		kind, data, err := conn.Read(t.Context())
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		if kind != websocket.MessageBinary {
			t.Fatalf("a text frame: %s", data)
		}
		got += string(data)
	}
	return got
}

func TestTerminal(t *testing.T) {
	f := start(t)
	conn, res := f.dial(f.create() + "/terminal?command=top&cols=100&rows=30&env.NAME=v")
	if res.Header.Get("X-Process-Id") != "42" {
		t.Errorf("pid %q", res.Header.Get("X-Process-Id"))
	}
	readUntil(t, conn, "100x30 top v\r\n")
	send := func(kind websocket.MessageType, text string) {
		t.Helper()
		if err := conn.Write(t.Context(), kind, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	send(websocket.MessageText, `{"resize":{"cols":120,"rows":40}}`)
	readUntil(t, conn, "resized to 120x40")
	send(websocket.MessageBinary, "\x00\xff")
	readUntil(t, conn, "\x00\xff")
	send(websocket.MessageBinary, "exit\n")
	for {
		_, _, err := conn.Read(t.Context())
		if err == nil {
			continue
		}
		if websocket.CloseStatus(err) != websocket.StatusNormalClosure || !strings.Contains(err.Error(), `{\"exit_code\":4}`) {
			t.Errorf("%v", err)
		}
		break
	}
}

func TestTerminalFaults(t *testing.T) {
	f := start(t)
	path := f.create() + "/terminal"
	f.failed(bothy.CodeInvalid, f.do("GET", path, nil))
	upgrade := header{"Upgrade": "websocket", "Connection": "Upgrade"}
	f.failed(bothy.CodeSandboxNotFound, f.do("GET", "/v1/sandboxes/none/terminal", nil, upgrade))
	f.failed(bothy.CodeInvalid, f.do("GET", path+"?cols=0", nil, upgrade))
	f.failed(bothy.CodeInvalid, f.do("GET", path+"?colour=red", nil, upgrade))
	conn, _ := f.dial(path)
	if err := conn.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil {
		_, _, err = conn.Read(t.Context())
	}
	if websocket.CloseStatus(err) != websocket.StatusUnsupportedData {
		t.Errorf("%v", err)
	}
	// A page of another site may not open a terminal, whatever it knows.
	_, res, err := websocket.Dial(t.Context(), f.URL()+path, &websocket.DialOptions{
		HTTPClient: f.client, HTTPHeader: http.Header{"Authorization": {"Bearer " + f.key}, "Origin": {"https://evil.example.com"}},
	})
	if err == nil || res == nil || res.StatusCode != http.StatusForbidden {
		t.Errorf("%v, %v", res, err)
	}
}

// Close ends followers at once, and lets commands finish.
func TestCloseDrains(t *testing.T) {
	f := start(t)
	path := f.create()
	f.world.Busy = make(chan struct{})
	follower := f.open(t.Context(), "GET", "/v1/events", nil, asEvents)
	conn, _ := f.dial(path + "/terminal")
	readUntil(t, conn, "\r\n")
	created := make(chan response, 1)
	go func() { created <- f.do("POST", "/v1/sandboxes", nil) }()
	<-f.world.Waiting
	closed := make(chan error, 1)
	go func() { closed <- f.Close() }()
	if _, err := io.ReadAll(follower.Body); err != nil {
		t.Errorf("the follower's stream was cut: %v", err)
	}
	var err error
	for err == nil {
		_, _, err = conn.Read(t.Context())
	}
	if websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the terminal: %v", err)
	}
	close(f.world.Busy)
	if res := <-created; res.StatusCode != 201 {
		t.Errorf("a request under way was not finished: %s", res.body)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := f.client.Do(f.request("GET", "/healthz", nil)); err == nil {
		t.Error("still answering")
	}
}

// Requests that do not finish in time are cut off.
func TestCloseDoesNotWaitForever(t *testing.T) {
	f := start(t, func(s *setup) { s.config.Grace = time.Millisecond })
	path := f.create()
	res := f.open(t.Context(), "POST", path+"/exec", `{"command":"wait"}`, asEvents)
	if _, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	<-f.world.Canceled
}
