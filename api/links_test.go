package api

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/api/openapi"
	"github.com/bothy-dev/bothy/api/ports"
)

// browse sends a request for a host name to the server, whatever the name resolves to.
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

// linkable is a server that creates links, with a sandbox whose id fits into a host name, like real
// ones.
func linkable(t *testing.T, change ...func(*setup)) (f *fixture, path string) {
	f = start(t, append(change, func(s *setup) { s.config.LinkKey = []byte("key") })...)
	f.world.Plain = true
	f.world.Server = http.HandlerFunc(inside)
	f.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return f, f.create()
}

func (f *fixture) link(path, body string) bothy.Link {
	f.Helper()
	return decode[bothy.Link](f, f.ok(201, f.do("POST", path+"/links", body)))
}

// enter opens a link as a browser does, and returns its host's address, which is also
// its origin, and the cookies.
func (f *fixture) enter(link bothy.Link) (origin string, cookies []*http.Cookie) {
	f.Helper()
	origin, _, _ = strings.Cut(link.URL, "/?")
	return origin, f.ok(303, f.browse("GET", link.URL, nil)).Cookies()
}

func TestLink(t *testing.T) {
	f, path := linkable(t)
	link := f.link(path, `{"port":8080,"expires_seconds":60}`)
	if until := time.Until(link.ExpiresAt); until < 50*time.Second || until > 70*time.Second {
		t.Errorf("expires in %v", until)
	}
	entered := f.ok(303, f.browse("GET", link.URL, nil))
	if at := entered.Header.Get("Location"); at != "/" || len(entered.Cookies()) != 1 || !entered.Cookies()[0].HttpOnly {
		t.Fatalf("Location %q, cookies %v", at, entered.Cookies())
	}
	page := strings.Split(link.URL, "?")[0]
	own := &http.Cookie{Name: "own", Value: "1"}
	host := strings.TrimSuffix(strings.TrimPrefix(page, "http://"), "/")
	same := header{"Origin": "http://" + host}
	res := f.ok(418, f.browse("POST", page+"a%2Fb?q=1", append(entered.Cookies(), own), same))
	if want := "POST /a%2Fb q=1 host=localhost:8080" + ` key="" prefix= body=`; res.body != want {
		t.Errorf("got  %s\nwant %s", res.body, want)
	}
	if res := f.ok(200, f.browse("GET", page+"cookies", append(entered.Cookies(), own))); res.body != "own=1" {
		t.Errorf("the server in the sandbox gets the cookies %q", res.body)
	}
	if strings.Contains(f.logged.String(), ports.LinkQuery) {
		t.Error("the log has the link")
	}
	f.ok(418, f.browse("GET", page, nil, header{"Authorization": "Bearer " + f.key})) // a key does as well
	// An Authorization header that an app's pages send is for the app.
	res = f.ok(418, f.browse("GET", page, entered.Cookies(), header{"Authorization": "Bearer app"}))
	if !strings.Contains(res.body, `key="Bearer app"`) {
		t.Errorf("%s", res.body)
	}
	res = f.ok(418, f.browse("GET", page, entered.Cookies(), header{"Authorization": "bearer  bothy_123"}))
	if !strings.Contains(res.body, `key=""`) {
		t.Errorf("a key arrives in the sandbox: %s", res.body)
	}
}

func TestLinkIsForOnePort(t *testing.T) {
	f, path := linkable(t)
	link := f.link(path, `{"port":8080}`)
	page, query, _ := strings.Cut(link.URL, "?")
	token := strings.TrimPrefix(query, ports.LinkQuery+"=")
	id := strings.TrimPrefix(path, "/v1/sandboxes/")
	hook := f.link(path, `{"port":8080,"kind":"webhook"}`)
	hookToken := strings.Split(hook.URL, "/")[4]
	for name, target := range map[string]string{
		"no link":          page,
		"another port":     strings.Replace(link.URL, "8080-", "8081-", 1),
		"another sandbox":  strings.Replace(link.URL, id, "other", 1),
		"a changed link":   link.URL + "x",
		"another link":     strings.Replace(link.URL, link.ID, hook.ID, 1),
		"a webhook's":      page + "?" + ports.LinkQuery + "=" + hookToken,
		"a browser's path": page + "_bothy/" + token + "/",
		"another prefix":   page + "?" + ports.LinkQuery + "=x" + token,
		"nothing to speak": page + "?" + ports.LinkQuery + "=..",
	} {
		if p := f.failed(bothy.CodeUnauthenticated, f.browse("GET", target, nil)); !strings.Contains(p.Hint, "/links") {
			t.Errorf("%s: %q", name, p.Hint)
		}
	}
	f.failed(bothy.CodeUnauthenticated, f.browse("GET", page, []*http.Cookie{{Name: ports.LinkCookie, Value: hookToken}}))
	f.failed(bothy.CodeSandboxNotFound, f.as(apitest.Stranger).do("POST", path+"/links", `{"port":8080}`))
	f.failed(bothy.CodeSandboxNotFound, f.as(apitest.Stranger).do("DELETE", path+"/links/"+link.ID, nil))
	f.failed(bothy.CodeSandboxNotFound, f.as(apitest.Stranger).do("GET", path+"/links", nil))
	f.failed(bothy.CodeInvalid, f.do("POST", path+"/links", `{"port":0}`))
	f.failed(bothy.CodeInvalid, f.do("POST", path+"/links", `{"port":80,"kind":"mail"}`))
	// A key of another project does not work either.
	f.failed(bothy.CodeSandboxNotFound, f.browse("GET", page, nil, header{"Authorization": "Bearer " + apitest.Stranger}))
}

func TestLinksAreListedAndRevoked(t *testing.T) {
	f, path := linkable(t)
	link := f.link(path, `{"port":8080}`)
	origin, cookies := f.enter(link)
	f.ok(418, f.browse("GET", origin+"/", cookies))
	listed := f.ok(200, f.do("GET", path+"/links", nil))
	if all := decode[openapi.Items[bothy.Link]](f, listed).Items; len(all) != 1 || all[0].ID != link.ID || all[0].TokenID != writerID {
		t.Errorf("listed %+v", all)
	}
	if strings.Contains(listed.body, "url") {
		t.Errorf("the list shows how to use a link: %s", listed.body)
	}
	f.ok(204, f.do("DELETE", path+"/links/"+link.ID, nil))
	f.failed(bothy.CodeUnauthenticated, f.browse("GET", origin+"/", cookies))
	f.failed(bothy.CodeUnauthenticated, f.browse("GET", link.URL, nil))
	f.failed(bothy.CodeNotFound, f.do("DELETE", path+"/links/"+link.ID, nil))
}

// follow opens a WebSocket by a link, as a page of an origin does.
func (f *fixture) follow(target, origin string, cookies []*http.Cookie) (*websocket.Conn, *http.Response, error) {
	u, err := url.Parse(target)
	if err != nil {
		f.Fatal(err)
	}
	h := http.Header{"Origin": {origin}}
	for _, c := range cookies {
		h.Add("Cookie", c.Name+"="+c.Value)
	}
	return websocket.Dial(f.Context(), f.URL()+u.RequestURI(), &websocket.DialOptions{HTTPClient: f.client, HTTPHeader: h, Host: u.Host})
}

func TestRevokedLinkEndsItsConnections(t *testing.T) {
	f, path := linkable(t)
	f.world.Server = http.HandlerFunc(endless)
	link := f.link(path, `{"port":8080}`)
	origin, cookies := f.enter(link)
	ws, _, err := f.follow(origin+"/", origin, cookies)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	readUntil(t, ws, "from inside")
	f.ok(204, f.do("DELETE", path+"/links/"+link.ID, nil))
	if _, _, err := ws.Read(t.Context()); err == nil {
		t.Error("the WebSocket continues")
	}
}

// What a page of another sandbox has a visitor's browser send is refused, however
// the browser tells where the page is from.
func TestPagesFromElsewhereDoNothingByALink(t *testing.T) {
	f, path := linkable(t)
	origin, cookies := f.enter(f.link(path, `{"port":8080}`))
	sibling := strings.Replace(origin, "8080-", "3000-", 1)
	other := regexp.MustCompile(`8080-[a-z0-9]+`).ReplaceAllString(origin, "8080-other")
	elsewhere := map[string]header{
		"a sibling's page":          {"Origin": other, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
		"a sibling's, without TLS":  {"Origin": other},
		"another site's form":       {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
		"a sandboxed frame":         {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
		"another scheme":            {"Origin": strings.Replace(origin, "http:", "https:", 1)},
		"an alias of the port":      {"Origin": strings.Replace(origin, "8080-", "08080-", 1)},
		"without an origin":         {"Sec-Fetch-Site": "same-site"},
		"nothing that a browser is": {},
	}
	own := map[string]header{
		"its own page":              {"Origin": origin, "Sec-Fetch-Site": "same-origin"},
		"its own, without TLS":      {"Origin": origin},
		"another port's":            {"Origin": sibling, "Sec-Fetch-Site": "same-site"},
		"the visitor, by reloading": {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "PROPFIND"} {
		for name, h := range elsewhere {
			if p := f.failed(bothy.CodePermission, f.browse(method, origin+"/", cookies, h)); !strings.Contains(p.Hint, "webhook") {
				t.Errorf("%s: %q", name, p.Hint)
			}
		}
		for name, h := range own {
			if res := f.browse(method, origin+"/", cookies, h); res.StatusCode != 418 {
				t.Errorf("%s of %s: %d %s", method, name, res.StatusCode, res.body)
			}
		}
	}
	for name, h := range elsewhere {
		upgrade := header{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
		if res := f.browse("GET", origin+"/socket", cookies, upgrade, h); res.StatusCode != 403 {
			t.Errorf("a WebSocket of %s: %d", name, res.StatusCode)
		}
	}
	for name, c := range map[string]struct {
		h    header
		want int
	}{
		"a link that is clicked":  {header{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 418},
		"a frame":                 {header{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 418},
		"a program with cookies":  {header{}, 418},
		"another port's fetch":    {header{"Origin": sibling, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 418},
		"a script of elsewhere":   {header{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, 403},
		"a fetch from elsewhere":  {header{"Origin": other, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 403},
		"a fetch without TLS":     {header{"Origin": other}, 403},
		"an object of elsewhere":  {header{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "object"}, 403},
		"a key, whatever is said": {header{"Authorization": "Bearer " + f.key, "Origin": other}, 418},
	} {
		with := cookies
		if c.h["Authorization"] != "" {
			with = nil
		}
		if res := f.browse("GET", origin+"/", with, c.h); res.StatusCode != c.want {
			t.Errorf("%s: %d, want %d: %s", name, res.StatusCode, c.want, res.body)
		}
	}
}

// A second cookie with the link's name, which a sibling domain can set, does not lock a user out.
func TestCookieTossing(t *testing.T) {
	f, path := linkable(t)
	origin, cookies := f.enter(f.link(path, `{"port":8080}`))
	tossed := append([]*http.Cookie{{Name: ports.LinkCookie, Value: "x"}, {Name: ports.LinkCookie, Value: "lnk_1.x"}}, cookies...)
	f.ok(418, f.browse("GET", origin+"/", tossed))
}

func TestCookiesFromInsideStayThere(t *testing.T) {
	f, path := linkable(t)
	f.world.Server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Set-Cookie"] = []string{
			"a=b; Domain=example.com; Path=/app; Partitioned", "c=d;domain = .localhost", "bothy_link=x; Path=/deep", "__Host-bothy_link=x; Secure; Path=/",
			"=bothy_link=x", " BOTHY_LINK =x; DOMAIN=localhost", "__host-Bothy_Link=1", "plain=1; HttpOnly",
		}
		w.Header().Set("Clear-Site-Data", `"cookies"`)
	})
	origin, cookies := f.enter(f.link(path, `{"port":8080}`))
	res := f.ok(200, f.browse("GET", origin+"/", cookies))
	want := "a=b; Path=/app; Partitioned | c=d | plain=1; HttpOnly"
	if got := strings.Join(res.Header.Values("Set-Cookie"), " | "); got != want || res.Header.Get("Clear-Site-Data") != "" {
		t.Errorf("got  %s\nwant %s\n%v", got, want, res.Header)
	}
}

// Many servers refuse names that they do not know, and pages from elsewhere. What a page of theirs
// sends looks as if it came from their own address, WebSockets too, unless the link says otherwise.
func TestHostInside(t *testing.T) {
	f, path := linkable(t)
	f.world.Server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			inside(w, r) // which compares Origin and Host
			return
		}
		w.Header().Set("Location", "http://"+r.Host+"/next?a=b")
		w.WriteHeader(http.StatusFound)
		fmt.Fprintf(w, "%s %s %s %s", r.Host, r.Header.Get("Origin"), r.Header.Get("Referer"), r.Header.Get("X-Forwarded-Host"))
	})
	for _, c := range []struct{ more, host string }{{"", "localhost:8080"}, {`,"keep_host":true`, ""}} {
		link := f.link(path, `{"port":8080`+c.more+`}`)
		origin, cookies := f.enter(link)
		outer := strings.TrimPrefix(origin, "http://")
		host, location := c.host, "/next?a=b"
		if host == "" {
			host, location = outer, origin+location
		}
		if link.KeepHost != (c.host == "") {
			t.Errorf("%+v", link)
		}
		res := f.ok(302, f.browse("POST", origin+"/", cookies, header{"Origin": origin, "Referer": origin + "/page?x"}))
		if want := fmt.Sprintf("%s http://%s http://%s/page?x %s", host, host, host, outer); res.body != want || res.Header.Get("Location") != location {
			t.Errorf("got  %s\nwant %s\n%v", res.body, want, res.Header)
		}
		ws, _, err := f.follow(origin+"/socket", origin, cookies)
		if err != nil {
			t.Fatal(err)
		}
		readUntil(t, ws, "from inside")
	}
	// What is not the page's own stays.
	hook := f.link(path, `{"port":8080,"kind":"webhook"}`)
	res := f.ok(302, f.browse("POST", hook.URL, nil, header{"Origin": hook.URL[:strings.Index(hook.URL, "/_")] + ".example"}))
	if !strings.Contains(res.body, ".example ") || strings.Contains(res.body, "http://localhost:8080") {
		t.Error(res.body)
	}
}

// A port has one host name.
func TestNoOtherNamesOfAPort(t *testing.T) {
	f, path := linkable(t)
	origin, cookies := f.enter(f.link(path, `{"port":8080}`))
	for _, alias := range []string{
		strings.Replace(origin, "8080-", "08080-", 1), strings.Replace(origin, ".localhost", ".localhost.", 1),
		strings.Replace(origin, "8080-", "73616-", 1), strings.Replace(origin, "8080-", "0-", 1), strings.Replace(origin, "8080-", "208080-", 1),
	} {
		f.failed(bothy.CodeNotFound, f.browse("GET", alias+"/", cookies))
		f.failed(bothy.CodeNotFound, f.browse("GET", alias+"/", nil, header{"Authorization": "Bearer " + f.key}))
	}
}

func TestWebhook(t *testing.T) {
	f, path := linkable(t)
	link := f.link(path, `{"port":8080,"kind":"webhook"}`)
	base := strings.TrimSuffix(link.URL, "/")
	origin, token, _ := strings.Cut(base, ports.LinkPath)
	// A body, a signature of the sender's own and any origin pass through.
	sender := header{"Authorization": "Basic c2VuZGVy", "Origin": "https://hooks.example", "Content-Type": "text/plain"}
	for _, method := range []string{"POST", "PUT", "GET", "DELETE"} {
		res := f.ok(418, f.browse(method, base+"/stripe/a%2Fb?q=1", nil, sender))
		if want := method + " /stripe/a%2Fb q=1 host=localhost:8080" + ` key="Basic c2VuZGVy" prefix= body=`; res.body != want {
			t.Errorf("got  %s\nwant %s", res.body, want)
		}
		if len(res.Cookies()) != 0 {
			t.Errorf("cookies %v", res.Cookies())
		}
	}
	for name, h := range map[string]header{"a header": {ports.LinkHeader: token}, "a bearer": {"Authorization": "Bearer " + token}} {
		if res := f.ok(418, f.browse("POST", origin+"/hook", nil, h)); !strings.HasPrefix(res.body, "POST /hook ") || !strings.Contains(res.body, `key=""`) {
			t.Errorf("%s: %s", name, res.body)
		}
	}
	f.ok(418, f.browse("POST", base, nil)) // without a slash at the end
	f.failed(bothy.CodeUnauthenticated, f.browse("GET", base+"/", nil, header{"Sec-Fetch-Mode": "navigate"}))
	f.failed(bothy.CodeUnauthenticated, f.browse("POST", base+"x/", nil))
	f.failed(bothy.CodeUnauthenticated, f.browse("POST", origin+"/%5Fbothy/"+token+"x/", nil))
	f.failed(bothy.CodeUnauthenticated, f.browse("POST", origin+"/_bothy%2F"+token+"/", nil))
	f.failed(bothy.CodeUnauthenticated, f.browse("POST", origin+"/", nil, header{ports.LinkHeader: "x"}))
	if strings.Contains(f.logged.String(), token[5:]) {
		t.Error("the log has the link")
	}
	for _, r := range f.audits.Records() {
		if strings.Contains(r.Object, token[5:]) {
			t.Errorf("the audit has the link: %+v", r)
		}
	}
	f.world.Server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.Header.Write(w)
		_, _ = io.WriteString(w, r.RequestURI)
	})
	if res := f.ok(200, f.browse("POST", base+"/x", nil, header{ports.LinkHeader: token, "Referer": base + "/"})); strings.Contains(res.body, token[5:]) {
		t.Errorf("the server in the sandbox gets the link: %s", res.body)
	}
	f.ok(204, f.do("DELETE", path+"/links/"+link.ID, nil))
	f.failed(bothy.CodeUnauthenticated, f.browse("POST", base+"/", nil))
	f.failed(bothy.CodeMethodNotAllowed, f.browse("POST", f.link(path, `{"port":8080}`).URL, nil))
}

func TestUseOfPortsIsRecorded(t *testing.T) {
	f, path := linkable(t)
	link := f.link(path, `{"port":8080}`)
	origin, cookies := f.enter(link)
	f.ok(418, f.browse("POST", origin+"/buy?secret=1", cookies, header{"Origin": origin}))
	f.do("POST", path+"/ports/8080/sell?secret=1", nil)
	f.browse("POST", origin+"/steal", cookies)
	var got []bothy.AuditRecord
	for _, r := range f.audits.Records() {
		if r.Action == "proxy-port" {
			got = append(got, r)
		}
	}
	id := strings.TrimPrefix(path, "/v1/sandboxes/")
	want := []struct {
		object, link string
		status       int
	}{{"8080 GET /", link.ID, 303}, {"8080 POST /buy", link.ID, 418}, {"8080 POST /sell", "", 418}, {"8080 POST /steal", link.ID, 403}}
	if len(got) != len(want) {
		t.Fatalf("recorded %+v", got)
	}
	for i, w := range want {
		if r := got[i]; r.Object != w.object || r.LinkID != w.link || r.Status != w.status || r.SandboxID != id || r.TokenID != writerID {
			t.Errorf("recorded %+v, want %+v", r, w)
		}
	}
}

func TestAnOpenedLinkLeadsNowhereElse(t *testing.T) {
	f, path := linkable(t)
	link := f.link(path, `{"port":8080}`)
	for _, at := range []string{"//evil.example/", "/%5Cevil.example/", "/\\evil.example/"} {
		res := f.ok(303, f.browse("GET", strings.Replace(link.URL, "/?", at+"?", 1), nil))
		if to := res.Header.Get("Location"); strings.HasPrefix(to, "//") || strings.HasPrefix(to, `/\`) {
			t.Errorf("%s leads to %s", at, to)
		}
	}
}

// Behind a proxy that takes the TLS off, links and cookies are those of TLS.
func TestLinksBehindAProxy(t *testing.T) {
	f, path := linkable(t, func(s *setup) {
		s.config.LinkDomain = "boxes.example.org"
		s.config.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	forwarded := header{"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"}
	link := decode[bothy.Link](f, f.ok(201, f.do("POST", path+"/links", `{"port":8080}`, forwarded)))
	if !regexp.MustCompile(`^https://8080-[a-z0-9]+\.boxes\.example\.org/\?`).MatchString(link.URL) {
		t.Fatalf("the link %s", link.URL)
	}
	cookies := f.ok(303, f.browse("GET", link.URL, nil, forwarded)).Cookies()
	if len(cookies) != 1 || cookies[0].Name != "__Host-bothy_link" || !cookies[0].Secure || cookies[0].Path != "/" || cookies[0].Domain != "" {
		t.Fatalf("cookies %+v", cookies)
	}
	origin, _, _ := strings.Cut(link.URL, "/?")
	f.ok(418, f.browse("POST", origin+"/", cookies, forwarded, header{"Origin": origin}))
	f.failed(bothy.CodePermission, f.browse("POST", origin+"/", cookies, forwarded, header{"Origin": strings.Replace(origin, "https", "http", 1)}))
	// The name without the prefix is one that siblings can set, and counts for nothing.
	f.failed(bothy.CodeUnauthenticated, f.browse("GET", origin+"/", []*http.Cookie{{Name: ports.LinkCookie, Value: cookies[0].Value}}, forwarded))
	if res := f.ok(200, f.browse("GET", origin+"/cookies", append(cookies, &http.Cookie{Name: "own", Value: "1"}), forwarded)); res.body != "own=1" {
		t.Errorf("the server in the sandbox gets the cookies %q", res.body)
	}
}

func TestNoLinksWithoutAKeyToSign(t *testing.T) {
	f := start(t)
	path := f.create()
	f.failed(bothy.CodeUnsupported, f.do("POST", path+"/links", `{"port":80}`))
	f.failed(bothy.CodeUnsupported, f.do("GET", path+"/links", nil))
	f.failed(bothy.CodeUnsupported, f.do("DELETE", path+"/links/lnk_1", nil))
	f.failed(bothy.CodeMisdirected, f.browse("GET", "http://80-sbx1.localhost/", nil))
}

// A server with its own TLS creates links with https.
func TestLinksOverTLS(t *testing.T) {
	f := start(t, func(s *setup) { s.config.LinkKey = []byte("key") })
	b := f.create()
	base := f.Server.URL()
	f.ports.TLS = true // after it began to listen without
	for domain, want := range map[string]string{
		"localhost": `"url":"https://8000-[a-z0-9-]+\.localhost:\d+/\?`, "ports.example.org": `"url":"https://8000-[a-z0-9-]+\.ports\.example\.org:\d+/\?`,
	} {
		f.ports.LinkDomain = domain
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

// The project behind a request for a port is known without answering it.
func TestProjectOfALink(t *testing.T) {
	f, path := linkable(t)
	link, hook := f.link(path, `{"port":8080}`), f.link(path, `{"port":8080,"kind":"webhook"}`)
	origin, cookies := f.enter(link)
	got := make(chan string, 1)
	f.SetPeers(peersFunc(func(w http.ResponseWriter, r *http.Request) {
		before := r.URL.String() + r.Header.Get(ports.LinkHeader)
		got <- f.ProjectOf(r)
		if after := r.URL.String() + r.Header.Get(ports.LinkHeader); after != before {
			t.Errorf("the request was %s and is %s", before, after)
		}
	}))
	caller, err := f.tokens.Authenticate(t.Context(), apitest.Writer)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		url     string
		cookies []*http.Cookie
		want    string
	}{
		"a browser's link":     {link.URL, nil, caller.ProjectID},
		"its cookie":           {origin + "/", cookies, caller.ProjectID},
		"a program's link":     {hook.URL, nil, caller.ProjectID},
		"nothing":              {origin + "/", nil, ""},
		"a link that is wrong": {link.URL + "0", nil, ""},
	} {
		f.browse("GET", c.url, c.cookies)
		if project := <-got; project != c.want {
			t.Errorf("%s: %q", name, project)
		}
	}
}

// peersFunc are other hosts that answer everything.
type peersFunc func(w http.ResponseWriter, r *http.Request)

func (p peersFunc) Route(w http.ResponseWriter, r *http.Request) (bool, func()) {
	p(w, r)
	return true, func() {}
}
