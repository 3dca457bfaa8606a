package api

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
)

const writerID = "tok_writer"

var errRevoked = bothy.Errorf(bothy.CodeUnauthenticated, "this API key was revoked").WithHint("Make a new key.")

// closedFor reads a WebSocket to its end, whose reason must be the end of the key.
func closedFor(t *testing.T, conn *websocket.Conn) {
	t.Helper()
	var err error
	for err == nil {
		_, _, err = conn.Read(t.Context())
	}
	if websocket.CloseStatus(err) != websocket.StatusPolicyViolation || !strings.Contains(err.Error(), "this API key was revoked") {
		t.Errorf("closed with %v", err)
	}
}

func TestSocketsEndWithTheirKey(t *testing.T) {
	f := start(t)
	path := f.create()
	terminal, _ := f.dial(path + "/terminal")
	readUntil(t, terminal, "\r\n")
	tunnel, _ := f.dial(path + "/ports/7")
	if err := tunnel.Write(t.Context(), websocket.MessageBinary, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	readUntil(t, tunnel, "hello")
	f.tokens.End(writerID, errRevoked)
	closedFor(t, terminal)
	closedFor(t, tunnel)
}

func TestStreamsEndWithTheirKey(t *testing.T) {
	f := start(t)
	path := f.create()
	f.ok(200, f.do("PUT", path+"/files?path=watched", "x"))
	var bodies []*bufio.Reader
	for _, at := range []string{"/v1/events", path + "/files/watch?path=watched"} {
		res := f.open(t.Context(), "GET", at, nil, asEvents)
		if res.StatusCode != 200 {
			t.Fatal(res.Status)
		}
		bodies = append(bodies, bufio.NewReader(res.Body))
		if _, err := bodies[len(bodies)-1].ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	exec := f.open(t.Context(), "POST", path+"/exec", `{"command":"wait"}`, asEvents)
	bodies = append(bodies, bufio.NewReader(exec.Body))
	if _, err := bodies[len(bodies)-1].ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	f.tokens.End(writerID, errRevoked)
	<-f.world.Canceled
	for _, b := range bodies {
		rest, err := io.ReadAll(b)
		if err != nil || !strings.Contains(string(rest), `event: error`+"\n"+`data: {"status":401,"code":"unauthenticated","detail":"this API key was revoked"`) {
			t.Errorf("%q, %v", rest, err)
		}
	}
}

func TestPlainRequestsEndWithTheirKey(t *testing.T) {
	f := start(t)
	path := f.create()
	done := make(chan response, 1)
	go func() { done <- f.do("POST", path+"/exec", `{"command":"wait"}`) }()
	for !f.world.Started("wait") {
		runtime.Gosched()
	}
	f.tokens.End(writerID, errRevoked)
	<-f.world.Canceled
	if p := f.failed(bothy.CodeUnauthenticated, <-done); p.Detail != errRevoked.Detail {
		t.Errorf("%+v", p)
	}
}

// A server in the sandbox that never ends its answer, and one that holds a
// WebSocket open.
func endless(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "" {
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			return
		}
		_ = ws.Write(r.Context(), websocket.MessageBinary, []byte("from inside"))
		_, _, _ = ws.Read(r.Context())
		return
	}
	_, _ = io.WriteString(w, "begun\n")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func TestProxiedConnectionsEndWithTheirKey(t *testing.T) {
	f := start(t)
	f.world.Server = http.HandlerFunc(endless)
	path := f.create() + "/ports/8080/"
	conn, _ := f.dial(path)
	readUntil(t, conn, "from inside")
	res := f.open(t.Context(), "GET", path, nil)
	body := bufio.NewReader(res.Body)
	if _, err := body.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	f.tokens.End(writerID, errRevoked)
	if _, _, err := conn.Read(t.Context()); err == nil {
		t.Error("the WebSocket continues")
	}
	if _, err := io.ReadAll(body); err == nil {
		t.Error("the answer came to an end of its own")
	}
}

// A client that does not read is disconnected.
func TestClientsThatDoNotReadAreDisconnected(t *testing.T) {
	f := start(t)
	over := make(chan struct{})
	f.Server.Handle("GET /endless", f.Authenticated(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(over)
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})))
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /endless HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+apitest.Writer+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1<<10)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	f.tokens.End(writerID, errRevoked)
	<-over
	if took := time.Since(began); took > time.Minute {
		t.Errorf("cut after %v", took)
	}
}

// A request through another protocol ends with its key as well.
func TestHandledRequestsEndWithTheirKey(t *testing.T) {
	f := start(t)
	began, ended := make(chan struct{}), make(chan struct{})
	f.Server.Handle("POST /tools", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		close(ended)
	}))
	answered := make(chan response, 1)
	go func() { answered <- f.do("POST", "/tools", nil) }()
	<-began
	f.tokens.End(writerID, errRevoked)
	<-ended
	<-answered
}

func TestAKeyMayRevokeItself(t *testing.T) {
	f := start(t)
	admin := f.as(apitest.Admin)
	token := decode[bothy.Token](admin, admin.ok(201, admin.do("POST", "/v1/tokens", `{"scopes":["admin"]}`)))
	self := f.as(token.Key)
	self.ok(204, self.do("DELETE", "/v1/tokens/"+token.ID, nil))
	self.failed(bothy.CodeUnauthenticated, self.do("GET", "/v1/tokens", nil))
}
