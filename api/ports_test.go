package api

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/bothy-dev/bothy"
)

func TestMetrics(t *testing.T) {
	f := start(t)
	m := decode[bothy.Metrics](f, f.ok(200, f.do("GET", f.create()+"/metrics", nil)))
	if m.CPUCount != 1 || m.EgressBytes != 4 {
		t.Errorf("%+v", m)
	}
}

func TestTunnel(t *testing.T) {
	f := start(t)
	path := f.create()
	conn, _ := f.dial(path + "/ports/7")
	if err := conn.Write(t.Context(), websocket.MessageBinary, []byte("\x00hello")); err != nil {
		t.Fatal(err)
	}
	readUntil(t, conn, "\x00hello")
	if err := conn.Write(t.Context(), websocket.MessageBinary, []byte("bye")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("%v", err)
	}
	f.failed(bothy.CodeInvalid, f.do("GET", path+"/ports/7", nil))
	upgrade := header{"Upgrade": "websocket", "Connection": "Upgrade"}
	f.failed(bothy.CodeConflict, f.do("GET", path+"/ports/9", nil, upgrade))
	for _, port := range []string{"0", "65536", "http", "-1"} {
		f.failed(bothy.CodeInvalid, f.do("GET", path+"/ports/"+port, nil, upgrade))
		f.failed(bothy.CodeInvalid, f.do("GET", path+"/ports/"+port+"/", nil))
	}
}

// inside is a server in the sandbox that tells what it was asked.
func inside(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/redirect":
		http.Redirect(w, r, "/there?x=1", http.StatusFound)
		return
	case "/cookie":
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b", Domain: "example.com", Path: "/app"})
		http.SetCookie(w, &http.Cookie{Name: "c", Value: "d"})
		return
	case "/cookies":
		_, _ = io.WriteString(w, r.Header.Get("Cookie"))
		return
	case "/socket":
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		_ = ws.Write(r.Context(), websocket.MessageBinary, []byte("from inside"))
		_ = ws.Close(websocket.StatusNormalClosure, "")
		return
	}
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Inside", "yes")
	w.Header().Set("Content-Security-Policy", "default-src *")
	w.WriteHeader(http.StatusTeapot)
	fmt.Fprintf(w, "%s %s %s host=%s key=%q prefix=%s body=%s", r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Host,
		r.Header.Get("Authorization"), r.Header.Get("X-Forwarded-Prefix"), body)
}

func TestProxy(t *testing.T) {
	f := start(t)
	f.world.Server = http.HandlerFunc(inside)
	path := f.create() + "/ports/8080"
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		res := f.ok(418, f.do(method, path+"/a%2Fb/c%20d?q=1&q=2", "text", header{"Idempotency-Key": "k"}))
		want := method + " /a%2Fb/c%20d q=1&q=2 host=localhost:8080 key=\"\" prefix=" + path + " body=text"
		if res.body != want {
			t.Errorf("got  %s\nwant %s", res.body, want)
		}
		if res.Header.Get("X-Inside") != "yes" || !strings.HasPrefix(res.Header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%v", res.Header)
		}
	}
	if res := f.ok(418, f.do("GET", path+"/", nil)); !strings.HasPrefix(res.body, "GET / ") {
		t.Errorf("%s", res.body)
	}
	f.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if at := f.ok(302, f.do("GET", path+"/redirect", nil)).Header.Get("Location"); at != path+"/there?x=1" {
		t.Errorf("Location %q", at)
	}
	cookies := f.ok(200, f.do("GET", path+"/cookie", nil)).Cookies()
	if len(cookies) != 2 || cookies[0].Path != path+"/app" || cookies[0].Domain != "" || cookies[1].Path != path+"/" {
		t.Errorf("%v", cookies)
	}
	conn, _ := f.dial(path + "/socket")
	readUntil(t, conn, "from inside")
}

func TestProxyFailures(t *testing.T) {
	f := start(t)
	path := f.create()
	f.failed(bothy.CodeConflict, f.do("GET", path+"/ports/9/", nil))
	f.failed(bothy.CodeConflict, f.do("GET", path+"/ports/8080/", nil))
	f.failed(bothy.CodeSandboxNotFound, f.do("GET", "/v1/sandboxes/none/ports/8080/", nil))
	f.failed(bothy.CodeGuest, f.do("GET", path+"/ports/7/", nil)) // echoes, which is no HTTP
}
