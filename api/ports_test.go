package api

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"golang.org/x/crypto/ssh"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/api/middleware"
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

func TestSSHTunnel(t *testing.T) {
	f := start(t)
	path := f.create()
	seen := map[string]string{}
	for _, query := range []string{"", "?user=root", "?user=root"} {
		conn, res := f.dial(path + "/ssh" + query)
		key := res.Header.Get("X-Ssh-Host-Key")
		public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key))
		if err != nil {
			t.Fatalf("host key %q: %v", key, err)
		}
		_, text, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var user, seed string
		if _, err := fmt.Sscanf(string(text), "%q %s", &user, &seed); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		raw, _ := hex.DecodeString(seed)
		signer, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(raw))
		if err != nil || !bytes.Equal(signer.PublicKey().Marshal(), public.Marshal()) {
			t.Errorf("the client is told of another key than the server gets: %v", err)
		}
		if want := strings.TrimPrefix(query, "?user="); user != want {
			t.Errorf("the user is %q, want %q", user, want)
		}
		seen[key] = seed
		conn.CloseNow()
	}
	other, res := f.dial(f.create() + "/ssh")
	other.CloseNow()
	if len(seen) != 1 || seen[res.Header.Get("X-Ssh-Host-Key")] != "" {
		t.Errorf("one sandbox has the keys %v, another %q", seen, res.Header.Get("X-Ssh-Host-Key"))
	}
	f.failed(bothy.CodeInvalid, f.do("GET", path+"/ssh", nil))
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
	case "/cached":
		for _, name := range []string{"Cache-Control", "CDN-Cache-Control", "Surrogate-Control"} {
			w.Header().Set(name, "public, max-age=31536000")
		}
		w.Header().Set("Expires", "Thu, 31 Dec 2099 00:00:00 GMT")
		w.Header().Set("Vary", "Cookie")
		w.Header().Set("X-Accel-Redirect", "/internal/secret")
		_, _ = io.WriteString(w, "script")
		return
	case "/headers":
		_ = r.Header.Write(w)
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
	for _, rest := range []string{"/a//b", "/a/../b", "/x/http://y?q=1", "//", "/../../../v1/sandboxes", "/./"} { // the path belongs to the server inside
		want, query, _ := strings.Cut(rest, "?")
		if res := f.ok(418, f.do("GET", path+rest, nil)); !strings.HasPrefix(res.body, "GET "+want+" "+query+" host=localhost:8080 ") {
			t.Errorf("%s: %s", rest, res.body)
		}
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

// byHeader is a protocol whose clients name the sandbox in a header.
type byHeader struct{ *fixture }

func (b byHeader) ServePort(w http.ResponseWriter, r *http.Request, _ string, _ uint16) bool {
	id := r.Header.Get("E2b-Sandbox-Id")
	if id == "" {
		return false
	}
	hold := func(func(error)) (*bothy.Caller, func(), error) {
		caller, err := b.tokens.Authenticate(r.Context(), apitest.Writer)
		return caller, func() {}, err
	}
	b.ServeOuterPort(w, r, middleware.Outer{Fail: func(w http.ResponseWriter, _ *http.Request, status int, _ *bothy.Error) { w.WriteHeader(status) }}, hold, func(w http.ResponseWriter, r *http.Request) error {
		b.ShowPort(w, r, id, 8080)
		return nil
	})
	return true
}

func (byHeader) ServeMissing(http.ResponseWriter, *http.Request) bool { return false }

// A cache in front of the server must not store what a sandbox says under the server's own name.
func TestPortsUnderTheServersNameAreNotCached(t *testing.T) {
	f, path := linkable(t)
	f.Server.SetOuterPorts(byHeader{f})
	id := header{"E2b-Sandbox-Id": strings.TrimPrefix(path, "/v1/sandboxes/")}
	link := f.link(path, `{"port":8080}`)
	origin, cookies := f.enter(link)
	for name, res := range map[string]response{
		"by header": f.ok(200, f.do("GET", "/cached", nil, id)),
		"by path":   f.ok(200, f.do("GET", path+"/ports/8080/cached", nil)),
	} {
		h := res.Header
		if got := h.Values("Cache-Control"); len(got) != 1 || got[0] != "private, no-store" {
			t.Errorf("%s: Cache-Control %q", name, got)
		}
		for _, not := range []string{"Expires", "Surrogate-Control", "CDN-Cache-Control", "X-Accel-Redirect"} {
			if h.Get(not) != "" {
				t.Errorf("%s: %s: %q", name, not, h.Get(not))
			}
		}
		if vary := strings.Join(h.Values("Vary"), ", "); !strings.Contains(vary, "E2b-Sandbox-Id") || !strings.Contains(vary, "Cookie") {
			t.Errorf("%s: Vary %q", name, vary)
		}
		if !strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%s: %v", name, h)
		}
	}
	own := f.ok(200, f.browse("GET", origin+"/cached", cookies)).Header
	if own.Get("Cache-Control") != "public, max-age=31536000" || own.Get("Vary") != "Cookie" || own.Get("X-Accel-Redirect") != "" {
		t.Errorf("under its own name: %v", own)
	}
	if res := f.do("GET", "/console/cached", nil, id); strings.Contains(res.body, "script") || res.StatusCode == 200 {
		t.Errorf("a sandbox answers for the console: %d %s", res.StatusCode, res.body)
	}
}

// Keys are for this server, whatever header they are in.
func TestKeysDoNotReachPorts(t *testing.T) {
	f, path := linkable(t)
	f.Server.SetOuterPorts(byHeader{f})
	e2bKey := "e2b_" + strings.Repeat("0f", 20)
	keys := header{"X-Api-Key": e2bKey, "Authorization": "Bearer " + e2bKey, "X-Other": "kept", "E2b-Sandbox-Id": strings.TrimPrefix(path, "/v1/sandboxes/")}
	res := f.ok(200, f.do("GET", "/headers", nil, keys))
	if strings.Contains(res.body, e2bKey) || !strings.Contains(res.body, "X-Other: kept") {
		t.Errorf("the server in the sandbox sees %s", res.body)
	}
	keys = header{"X-Api-Key": "its own"}
	if res := f.ok(200, f.do("GET", path+"/ports/8080/headers", nil, keys)); !strings.Contains(res.body, "X-Api-Key: its own") {
		t.Errorf("the server in the sandbox sees %s", res.body)
	}
}
