package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

const secretValue = "sk-live-0123456789"

// vault is a lab with an API that gets a secret and a host that does not.
type vault struct {
	*lab
	ca  *authority
	log *safeBuffer

	mu  sync.Mutex
	got []*http.Request
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newVault(t *testing.T, list ...bothy.Secret) *vault {
	v := &vault{ca: newAuthority(t), log: &safeBuffer{}}
	v.lab = newLab(t, func(o *Options) {
		o.RootCAs = v.ca.pool()
		o.Log = slog.New(slog.NewTextHandler(v.log, nil))
	})
	v.net.name("api.example", "5.6.7.8")
	v.net.name("other.example", "5.6.7.9")
	v.net.name("liar.example", "5.6.7.10")
	v.net.serve("5.6.7.8:443", v.https("api.example"))
	v.net.serve("5.6.7.9:443", v.https("other.example"))
	v.net.serve("5.6.7.10:443", v.https("somebody-else.example"))
	v.net.serve("5.6.7.8:80", serveHTTP(v.handle))
	if len(list) == 0 {
		list = []bothy.Secret{{Name: "KEY", Value: secretValue, Hosts: []string{"api.example", "liar.example"}}}
	}
	if err := v.gateway.SetSecrets(list, nil); err != nil {
		t.Fatal(err)
	}
	v.policy(only("api.example", "other.example", "liar.example"))
	return v
}

// https serves HTTP/1 and HTTP/2 as name.
func (v *vault) https(name string) func(net.Conn) {
	conf := &tls.Config{Certificates: []tls.Certificate{v.ca.certificate(v.t, name)}, NextProtos: []string{"h2", "http/1.1"}}
	return func(c net.Conn) {
		done := make(chan struct{})
		var once sync.Once
		srv := &http.Server{Handler: http.HandlerFunc(v.handle), TLSConfig: conf.Clone(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
			ConnState: func(_ net.Conn, s http.ConnState) {
				if s == http.StateClosed || s == http.StateHijacked {
					once.Do(func() { close(done) })
				}
			}}
		_ = srv.Serve(&singleListener{conn: tls.Server(c, conf), closed: done})
	}
}

func (v *vault) handle(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	v.got = append(v.got, r)
	v.mu.Unlock()
	switch r.URL.Path {
	case "/reflect":
		reflectRequest(w, r)
	case "/socket":
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		w.WriteHeader(http.StatusSwitchingProtocols)
		if c, rw, err := http.NewResponseController(w).Hijack(); err == nil {
			fmt.Fprint(c, "[")
			_, _ = io.CopyN(c, rw, 5)
			for _, b := range []byte(r.Header.Get("Authorization") + "]") {
				_, _ = c.Write([]byte{b})
			}
			c.Close()
		}
	case "/echo":
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		b := make([]byte, 1024)
		for {
			n, err := r.Body.Read(b)
			_, _ = w.Write(b[:n])
			_ = http.NewResponseController(w).Flush()
			if err != nil {
				return
			}
		}
	case "/ws":
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		w.WriteHeader(http.StatusSwitchingProtocols)
		if c, rw, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = io.CopyN(c, rw, 5)
			c.Close()
		}
	default:
		fmt.Fprint(w, r.Proto)
	}
}

func (v *vault) last() *http.Request {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.got) == 0 {
		return nil
	}
	return v.got[len(v.got)-1]
}

// client is an HTTP client in the sandbox, which trusts the sandbox's own authority.
func (v *vault) client(http2 bool) *http.Client {
	roots := v.ca.pool()
	roots.AppendCertsFromPEM(v.gateway.CAPEM())
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: http2,
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			name, port, _ := net.SplitHostPort(addr)
			var p int
			_, _ = fmt.Sscan(port, &p)
			return v.dialName(name, p)
		},
	}
	v.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: hangs}
}

func (v *vault) do(c *http.Client, url string, header ...string) (int, string) {
	v.t.Helper()
	r, _ := http.NewRequest("GET", url, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := c.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

func TestSecretReplacesItsPlaceholder(t *testing.T) {
	for _, mode := range []bothy.NetworkMode{bothy.NetworkRestricted, bothy.NetworkOpen} {
		for _, http2 := range []bool{false, true} {
			v := newVault(t)
			if mode == bothy.NetworkOpen {
				v.policy(open)
			}
			placeholder := v.gateway.Placeholders()["KEY"]
			if !strings.HasPrefix(placeholder, "bothy-secret-KEY-") || strings.Contains(placeholder, secretValue) {
				t.Fatalf("placeholder %q", placeholder)
			}
			code, body := v.do(v.client(http2), "https://api.example/v1?a=1;b=2", "Authorization", "Bearer "+placeholder, "X-Api-Key", "a "+placeholder+" b")
			if code != 200 || (body == "HTTP/2.0") != http2 && body != "HTTP/2.0" {
				t.Fatalf("%s, h2 %v: %d %q", mode, http2, code, body)
			}
			r := v.last()
			if got := r.Header.Get("Authorization"); got != "Bearer "+secretValue {
				t.Errorf("the host got %q", got)
			}
			if got := r.Header.Get("X-Api-Key"); got != "a "+secretValue+" b" {
				t.Errorf("the host got %q", got)
			}
			if r.Host != "api.example" || r.URL.RawQuery != "a=1;b=2" || r.Header.Get("X-Forwarded-For") != "" {
				t.Errorf("the request was changed: %s %s %v", r.Host, r.URL.RawQuery, r.Header)
			}
		}
	}
}

func TestSecretInsideBasicAuthentication(t *testing.T) {
	v := newVault(t)
	wrapped := base64.StdEncoding.EncodeToString([]byte("user:" + v.gateway.Placeholders()["KEY"]))
	v.do(v.client(false), "https://api.example/", "Authorization", "Basic "+wrapped)
	if user, pass, ok := v.last().BasicAuth(); !ok || user != "user" || pass != secretValue {
		t.Errorf("the host got %q", v.last().Header.Get("Authorization"))
	}
}

func TestSecretWithAHeaderIsSet(t *testing.T) {
	v := newVault(t, bothy.Secret{Name: "KEY", Value: secretValue, Hosts: []string{"*.example"}, Header: "x-api-key"})
	v.do(v.client(false), "https://api.example/")
	if got := v.last().Header.Get("X-Api-Key"); got != secretValue {
		t.Errorf("the host got %q", got)
	}
	v.do(v.client(false), "https://api.example/", "X-Api-Key", "Token "+v.gateway.Placeholders()["KEY"])
	if got := v.last().Header.Get("X-Api-Key"); got != "Token "+secretValue {
		t.Errorf("the host got %q", got)
	}
}

func TestOverriddenHeaderIsAlwaysTheSecrets(t *testing.T) {
	v := newVault(t,
		bothy.Secret{Name: "KEY", Value: secretValue, Hosts: []string{"api.example"}, Header: "authorization", Override: true},
		bothy.Secret{Name: "stage", Value: "production", Hosts: []string{"api.example"}, Header: "X-Stage", Override: true, AllowEcho: true})
	if p := v.gateway.Placeholders(); len(p) != 0 {
		t.Errorf("the sandbox's placeholders are %v", p)
	}
	for _, sent := range [][]string{nil, {"Authorization", "Bearer mine", "X-Stage", "test"}} {
		v.do(v.client(true), "https://api.example/", sent...)
		h := v.last().Header
		if !slices.Equal(h["Authorization"], []string{secretValue}) || !slices.Equal(h["X-Stage"], []string{"production"}) {
			t.Errorf("the host got %q and %q", h["Authorization"], h["X-Stage"])
		}
	}
	forms := v.gateway.secrets.Load().putInPlace("api.example", httptest.NewRequest("GET", "https://api.example/", nil)).forms
	for _, f := range forms {
		if f.value == "production" {
			t.Error("a value that may be shown is searched for in answers")
		}
	}
	if len(forms) == 0 {
		t.Error("the secret is not searched for in answers")
	}
	v.do(v.client(true), "https://other.example/", "Authorization", "Bearer mine")
	if got := v.last().Header.Get("Authorization"); got != "Bearer mine" {
		t.Errorf("another host got %q", got)
	}
}

func TestSecretGoesNowhereElse(t *testing.T) {
	v := newVault(t)
	placeholder := v.gateway.Placeholders()["KEY"]
	for _, url := range []string{"https://other.example/", "http://api.example/"} {
		if code, body := v.do(v.client(false), url, "Authorization", placeholder); code != 200 {
			t.Fatalf("%s: %d %s", url, code, body)
		}
		if got := v.last().Header.Get("Authorization"); got != placeholder {
			t.Errorf("%s got %q", url, got)
		}
	}
	// A host without a valid certificate.
	before := v.last()
	code, body := v.do(v.client(false), "https://liar.example/", "Authorization", placeholder)
	if code != http.StatusBadGateway || strings.Contains(body, secretValue) || v.last() != before {
		t.Errorf("a host with a false certificate: %d %q", code, body)
	}
	// Another host over the same connection.
	r, _ := http.NewRequest("GET", "https://api.example/", nil)
	r.Host = "other.example"
	r.Header.Set("Authorization", placeholder)
	res, err := v.client(true).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusMisdirectedRequest || v.last() != before {
		t.Errorf("a request for another host got %d", res.StatusCode)
	}
	r, _ = http.NewRequest("TRACE", "https://api.example/", nil)
	r.Header.Set("Authorization", placeholder)
	if res, err = v.client(false).Do(r); err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("TRACE got %d", res.StatusCode)
	}
	lines, _ := json.Marshal(v.gateway.Log(time.Time{}))
	if strings.Contains(string(lines), secretValue) || strings.Contains(v.log.String(), secretValue) {
		t.Error("the value is in a log")
	}
}

func TestInterceptedBodiesStream(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		v := newVault(t)
		pr, pw := io.Pipe()
		r, _ := http.NewRequest("POST", "https://api.example/echo", pr)
		res, err := v.client(http2).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		for _, part := range []string{"first", "second", strings.Repeat("x", 200_000)} {
			go func() { _, _ = io.WriteString(pw, part) }()
			b := make([]byte, len(part))
			if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != part {
				t.Fatalf("h2 %v: a part of %d bytes did not come back before the request ended: %v", http2, len(part), err)
			}
		}
		pw.Close()
		if _, err := io.ReadAll(res.Body); err != nil {
			t.Errorf("h2 %v: the end of the answer: %v", http2, err)
		}
	}
}

// The host's answer is complete although it began before the host, or the gateway, had read the
// request's body.
func TestInterceptedAnswerMayPrecedeTheBody(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		v := newVault(t)
		c := v.client(http2)
		for _, length := range []int64{-1, 5} {
			pr, pw := io.Pipe()
			r, _ := http.NewRequest("POST", "https://api.example/echo", pr)
			r.ContentLength = length
			res, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(pw, "whole")
			pw.Close()
			b, err := io.ReadAll(res.Body)
			if err != nil || string(b) != "whole" {
				t.Errorf("h2 %v, length %d: got %q, %v", http2, length, b, err)
			}
			res.Body.Close()
		}
	}
}

func TestWebSocketPassesThroughAnInterception(t *testing.T) {
	v := newVault(t)
	c, err := v.dialName("api.example", 443)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(v.gateway.CAPEM())
	tc := tls.Client(c, &tls.Config{ServerName: "api.example", RootCAs: roots})
	_ = tc.SetDeadline(time.Now().Add(hangs))
	fmt.Fprintf(tc, "GET /ws HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: %s\r\n\r\n", v.gateway.Placeholders()["KEY"])
	br := bufio.NewReader(tc)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("got %v, %v", res, err)
	}
	fmt.Fprint(tc, "hello")
	b := make([]byte, 5)
	if _, err := io.ReadFull(br, b); err != nil || string(b) != "hello" {
		t.Fatalf("got %q, %v", b, err)
	}
	if got := v.last().Header.Get("Authorization"); got != secretValue {
		t.Errorf("the host got %q", got)
	}
}

func TestInterceptionEndsWithThePolicy(t *testing.T) {
	v := newVault(t)
	pr, pw := io.Pipe()
	defer pw.Close()
	r, _ := http.NewRequest("POST", "https://api.example/echo", pr)
	res, err := v.client(true).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	v.policy(only("other.example"))
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("an intercepted connection survived the change of policy")
	}
}

// A copy of a running sandbox has placeholders and certificates in memory, so it gets its origin's
// seed.
func TestCopyKeepsPlaceholdersAndAuthority(t *testing.T) {
	list := []bothy.Secret{{Name: "KEY", Value: secretValue, Hosts: []string{"api.example"}}}
	var seen []string
	for _, c := range []struct{ own, given string }{{"origin", "shared"}, {"copy", "shared"}, {"copy", ""}} {
		host, _ := newNetDevice(1500)
		g, err := New(host, Options{SecretSeed: []byte(c.own)})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		if err := g.SetSecrets(list, []byte(c.given)); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, g.Placeholders()["KEY"]+fmt.Sprint(g.secrets.Load().ca.key.X))
	}
	if seen[0] != seen[1] {
		t.Error("a copy with its origin's seed has other placeholders or another authority")
	}
	if seen[1] == seen[2] {
		t.Error("a copy without a seed has its origin's placeholders or authority")
	}
}

func TestResumedSandboxKeepsPlaceholdersAndAuthority(t *testing.T) {
	list := []bothy.Secret{{Name: "KEY", Value: secretValue, Hosts: []string{"api.example"}}}
	make := func(seed string) *Gateway {
		host, _ := newNetDevice(1500)
		g, err := New(host, Options{SecretSeed: []byte(seed)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close() })
		if err := g.SetSecrets(list, nil); err != nil {
			t.Fatal(err)
		}
		return g
	}
	a, b, other := make("seed of one sandbox"), make("seed of one sandbox"), make("seed of another")
	if a.Placeholders()["KEY"] != b.Placeholders()["KEY"] || a.Placeholders()["KEY"] == other.Placeholders()["KEY"] {
		t.Error("placeholders depend on more than the seed")
	}
	leaf, err := b.secrets.Load().ca.certificate("api.example")
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(leaf.Certificate[0])
	for g, want := range map[*Gateway]bool{a: true, other: false} {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(g.CAPEM())
		_, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: "api.example"})
		if (err == nil) != want {
			t.Errorf("verify with the authority of an earlier gateway: %v, want success %v", err, want)
		}
	}
}

func TestSecretsAreChecked(t *testing.T) {
	l := newLab(t)
	if l.gateway.CAPEM() != nil || len(l.gateway.Placeholders()) != 0 {
		t.Error("a sandbox without secrets has an authority")
	}
	good := bothy.Secret{Name: "KEY", Value: secretValue, Hosts: []string{"api.example"}}
	for what, change := range map[string]func(*bothy.Secret){
		"no name":         func(s *bothy.Secret) { s.Name = "" },
		"a name of lines": func(s *bothy.Secret) { s.Name = "a\nb" },
		"no value":        func(s *bothy.Secret) { s.Value = "" },
		"a line break":    func(s *bothy.Secret) { s.Value = secretValue + "\r\nX: y" },
		"no hosts":        func(s *bothy.Secret) { s.Hosts = nil },
		"a host of stars": func(s *bothy.Secret) { s.Hosts = []string{"*"} },
		"a bad header":    func(s *bothy.Secret) { s.Header = "a b" },
		"no header":       func(s *bothy.Secret) { s.Override = true },
		"a length":        func(s *bothy.Secret) { s.Header = "content-length" },
	} {
		s := good
		change(&s)
		err := l.gateway.SetSecrets([]bothy.Secret{s}, nil)
		if bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil && strings.Contains(err.Error(), secretValue) {
			t.Errorf("%s: the value is in the error", what)
		}
	}
	if err := l.gateway.SetSecrets([]bothy.Secret{good, good}, nil); bothy.ErrorCode(err) != bothy.CodeInvalid {
		t.Errorf("one name twice: %v", err)
	}
}
