package api

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
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

// browser asks a host name of the server's, whatever that resolves to.
func (f *fixture) browse(method, target string, cookies []*http.Cookie, headers ...header) response {
	f.Helper()
	u, err := url.Parse(target)
	if err != nil {
		f.Fatal(err)
	}
	r := f.as("").request(method, u.RequestURI(), nil, append(headers, header{"Host": u.Host})...)
	for _, c := range cookies {
		r.AddCookie(c)
	}
	res, err := f.client.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		f.Fatal(err)
	}
	return response{res, string(text)}
}

// linkable is a server that makes links, with a sandbox whose id fits into a
// host name, as real ones do.
func linkable(t *testing.T) (f *fixture, path string) {
	f = start(t, func(s *Server) { s.config.LinkKey = []byte("key") })
	f.world.Plain = true
	f.world.Server = http.HandlerFunc(inside)
	f.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return f, f.create()
}

func TestLink(t *testing.T) {
	f, path := linkable(t)
	link := decode[Link](f, f.ok(201, f.do("POST", path+"/links", `{"port":8080,"expires_seconds":60}`)))
	if until := time.Until(link.ExpiresAt); until < 50*time.Second || until > 70*time.Second {
		t.Errorf("expires in %v", until)
	}
	entered := f.ok(303, f.browse("GET", link.URL, nil))
	if at := entered.Header.Get("Location"); at != "/" || len(entered.Cookies()) != 1 || !entered.Cookies()[0].HttpOnly {
		t.Fatalf("Location %q, cookies %v", at, entered.Cookies())
	}
	page := strings.Split(link.URL, "?")[0]
	own := &http.Cookie{Name: "own", Value: "1"}
	res := f.ok(418, f.browse("POST", page+"a%2Fb?q=1", append(entered.Cookies(), own)))
	host := strings.TrimSuffix(strings.TrimPrefix(page, "http://"), "/")
	if want := "POST /a%2Fb q=1 host=" + host + ` key="" prefix= body=`; res.body != want {
		t.Errorf("got  %s\nwant %s", res.body, want)
	}
	if res := f.ok(200, f.browse("GET", page+"cookies", append(entered.Cookies(), own))); res.body != "own=1" {
		t.Errorf("the server in the sandbox gets the cookies %q", res.body)
	}
	if strings.Contains(f.logged.String(), linkQuery) {
		t.Error("the log has the link")
	}
	f.ok(418, f.browse("GET", page, nil, header{"Authorization": "Bearer " + f.key})) // a key does as well
}

func TestLinkIsForOnePort(t *testing.T) {
	f, path := linkable(t)
	link := decode[Link](f, f.ok(201, f.do("POST", path+"/links", `{"port":8080}`)))
	page, query, _ := strings.Cut(link.URL, "?")
	token := strings.TrimPrefix(query, linkQuery+"=")
	id := strings.TrimPrefix(path, "/v1/sandboxes/")
	old := f.signLink(portTarget{sandbox: id, port: 8080}, "default", time.Now().Add(-time.Second))
	for name, target := range map[string]string{
		"no link":          page,
		"another port":     strings.Replace(link.URL, "8080-", "8081-", 1),
		"another sandbox":  strings.Replace(link.URL, id, "other", 1),
		"a changed link":   link.URL + "x",
		"an expired link":  page + "?" + linkQuery + "=" + old,
		"another project":  page + "?" + linkQuery + "=x" + token,
		"nothing to speak": page + "?" + linkQuery + "=..",
	} {
		if p := f.failed(bothy.CodeUnauthenticated, f.browse("GET", target, nil)); !strings.Contains(p.Hint, "/links") {
			t.Errorf("%s: %q", name, p.Hint)
		}
		f.failed(bothy.CodeUnauthenticated, f.browse("GET", page, []*http.Cookie{{Name: linkCookie, Value: old}}))
	}
	f.failed(bothy.CodeSandboxNotFound, f.as(apitest.Stranger).do("POST", path+"/links", `{"port":8080}`))
	f.failed(bothy.CodeInvalid, f.do("POST", path+"/links", `{"port":0}`))
	// A stranger's key opens nothing here either.
	f.failed(bothy.CodeSandboxNotFound, f.browse("GET", page, nil, header{"Authorization": "Bearer " + apitest.Stranger}))
}

func TestNoLinksWithoutAKeyToSign(t *testing.T) {
	f := start(t)
	f.failed(bothy.CodeUnsupported, f.do("POST", f.create()+"/links", `{"port":80}`))
	f.failed(bothy.CodeMisdirected, f.browse("GET", "http://80-sbx1.localhost/", nil))
}

// A server with TLS of its own makes links that say so.
func TestLinksOverTLS(t *testing.T) {
	f := start(t, func(s *Server) { s.config.LinkKey = []byte("key") })
	b := f.create()
	base := f.Server.URL()
	f.config.TLS = &tls.Config{} // after it began to listen without
	for domain, want := range map[string]string{
		"localhost": `"url":"https://8000-[a-z0-9-]+\.localhost:\d+/\?`, "ports.example.org": `"url":"https://8000-[a-z0-9-]+\.ports\.example\.org:\d+/\?`,
	} {
		f.config.LinkDomain = domain
		r, err := http.NewRequestWithContext(t.Context(), "POST", base+b+"/links", strings.NewReader(`{"port":8000}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Authorization": {"Bearer " + f.key}, "Content-Type": {"application/json"}}
		res, err := f.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !regexp.MustCompile(want).Match(text) {
			t.Errorf("below %s: %s, %v", domain, text, err)
		}
	}
}
