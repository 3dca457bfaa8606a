package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
)

const aBrowser = "/devtools/browser/0f-9A"

// chromium answers as Chromium does: only to localhost, with its own address, and to no page.
func chromium(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Host != "localhost:9222" || r.Header.Get("Authorization") != "" || r.Header.Get("X-Bothy-Link") != "":
		http.Error(w, "Host header is specified and is not an IP address or localhost.", http.StatusInternalServerError)
	case r.URL.Path == "/json/version":
		fmt.Fprintf(w, `{"Browser":"Chrome/1","Protocol-Version":"1.3","webSocketDebuggerUrl":"ws://%s%s"}`, r.Host, aBrowser)
	case r.URL.Path == "/json/list":
		fmt.Fprintf(w, `[{"id":"A1","type":"page","title":"a","url":"about:blank","devtoolsFrontendUrl":"https://evil.example/",
			"webSocketDebuggerUrl":"ws://%s/devtools/page/A1"},{"id":"B","webSocketDebuggerUrl":"ws://evil.example/elsewhere"}]`, r.Host)
	case r.Header.Get("Upgrade") != "" && r.Header.Get("Origin") == "":
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		_ = ws.Write(r.Context(), websocket.MessageText, []byte("at "+r.URL.String()))
		ws.Close(websocket.StatusNormalClosure, "")
	default:
		http.Error(w, "Rejected an incoming WebSocket connection", http.StatusForbidden)
	}
}

// browsing is a server with a sandbox in which a browser runs.
func browsing(t *testing.T) (f *fixture, path string) {
	f, path = linkable(t)
	f.world.Server = http.HandlerFunc(chromium)
	return f, path
}

// says opens a WebSocket and returns its first message.
func (f *fixture) says(address string, headers http.Header) string {
	f.Helper()
	ws, _, err := websocket.Dial(f.Context(), address, &websocket.DialOptions{HTTPClient: f.client, HTTPHeader: headers})
	if err != nil {
		f.Fatal(err)
	}
	defer ws.CloseNow()
	_, text, err := ws.Read(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	return string(text)
}

func TestBrowserByALink(t *testing.T) {
	f, path := browsing(t)
	link := f.link(path, `{"port":9222,"kind":"cdp"}`)
	if want := f.URL() + "/_bothy/lnk_"; !strings.HasPrefix(link.URL, want) || !strings.HasSuffix(link.URL, path+"/cdp/9222") {
		t.Fatalf("the link is %s", link.URL)
	}
	f = f.as("")
	below := strings.TrimPrefix(link.URL, f.URL())
	ws := "ws" + strings.TrimPrefix(link.URL, "http")
	for _, version := range []string{"/json/version", "/json/version/"} {
		v := decode[map[string]string](f, f.ok(200, f.do("GET", below+version, nil)))
		if v["webSocketDebuggerUrl"] != ws+aBrowser || v["Browser"] != "Chrome/1" {
			t.Errorf("%s: %v", version, v)
		}
	}
	list := f.ok(200, f.do("GET", below+"/json/list", nil))
	if pages := decode[[]map[string]string](f, list); len(pages) != 2 || pages[0]["webSocketDebuggerUrl"] != ws+"/devtools/page/A1" || pages[1]["webSocketDebuggerUrl"] != "" {
		t.Errorf("%s", list.body)
	}
	if strings.Contains(list.body, "evil.example") {
		t.Errorf("an address of the browser's own is passed on: %s", list.body)
	}
	foreign := http.Header{"Origin": {"https://elsewhere.example"}}
	for address, want := range map[string]string{ws: aBrowser, ws + "/": aBrowser, ws + aBrowser + "?x=1": aBrowser, ws + "/devtools/page/A1": "/devtools/page/A1"} {
		if got := f.says(address, foreign); got != "at "+want {
			t.Errorf("%s: %s", address, got)
		}
	}
	f.failed(bothy.CodeNotFound, f.do("GET", below+"/json/new", nil))
	f.failed(bothy.CodeNotFound, f.do("GET", below+"/", nil))
	f.failed(bothy.CodeNotFound, f.do("GET", below+"/devtools/inspector.html", nil, header{"Upgrade": "websocket", "Connection": "Upgrade"}))
	f.failed(bothy.CodeMethodNotAllowed, f.do("PUT", below+"/json/version", nil))
	f.failed(bothy.CodeUnauthenticated, f.do("GET", strings.Replace(below, "/cdp/9222", "/cdp/9223", 1)+"/json/version", nil))
	f.failed(bothy.CodeUnauthenticated, f.do("GET", strings.Replace(below, "/v1/", "x/v1/", 1)+"/json/version", nil))
	if secret := strings.Split(below, "/")[2]; strings.Contains(f.logged.String(), secret) {
		t.Error("the log has the link")
	}
}

func TestBrowserByAKey(t *testing.T) {
	f, path := browsing(t)
	at := f.URL() + path + "/cdp/9222"
	v := decode[map[string]string](f, f.ok(200, f.do("GET", path+"/cdp/9222/json/version/", nil)))
	if want := "ws" + strings.TrimPrefix(at, "http") + aBrowser; v["webSocketDebuggerUrl"] != want {
		t.Errorf("got %v, want %s", v, want)
	}
	key := http.Header{"Authorization": {"Bearer " + f.key}}
	if got := f.says("ws"+strings.TrimPrefix(at, "http"), key); got != "at "+aBrowser {
		t.Error(got)
	}
	f.failed(bothy.CodeUnauthenticated, f.as("").do("GET", path+"/cdp/9222/json/version", nil))
	f.failed(bothy.CodeSandboxNotFound, f.as(apitest.Stranger).do("GET", path+"/cdp/9222/json/version", nil))
	f.failed(bothy.CodeInvalid, f.do("GET", path+"/cdp/x/json/version", nil))
}

// What a browser says about itself is what a guest says.
func TestWhatABrowserAnswersIsNotTrusted(t *testing.T) {
	large, _ := json.Marshal(map[string]string{"Browser": strings.Repeat("a", 1<<20), "webSocketDebuggerUrl": "ws://localhost:9222" + aBrowser})
	for name, answer := range map[string]string{
		"nothing":       "",
		"no JSON":       "<html>",
		"another shape": `[1]`,
		"deep":          strings.Repeat(`{"a":`, 20_000),
		"no address":    `{"Browser":"Chrome/1"}`,
		"a page's":      `{"webSocketDebuggerUrl":"ws://localhost:9222/devtools/page/A"}`,
		"another path":  `{"webSocketDebuggerUrl":"ws://localhost:9222/devtools/browser/../../x"}`,
		"line ends":     `{"webSocketDebuggerUrl":"ws://localhost:9222/devtools/browser/a\r\nb"}`,
		"a large one":   string(large),
	} {
		f, path := linkable(t)
		f.world.Server = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) })
		res := f.do("POST", path+"/links", `{"port":9222,"kind":"cdp"}`)
		code := bothy.CodeConflict
		if name == "a large one" {
			code = bothy.CodeGuest
		}
		if p := f.failed(code, res); p.Hint == "" {
			t.Errorf("%s: no hint", name)
		}
		if name != "nothing" && name != "a large one" {
			continue
		}
		f.failed(code, f.do("GET", path+"/cdp/9222/json/version", nil))
	}
}
