package gateway

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// reflectRequest is a host that sends back what it received, in many encodings.
func reflectRequest(w http.ResponseWriter, r *http.Request) {
	said := r.Header.Get("Authorization") + r.Header.Get("X-Api-Key")
	for _, key := range []string{"Origin", "Idempotency-Key", "X-Request-Id", "User-Agent", "Authorization", "X-Api-Key"} {
		w.Header().Set("X-Echo-"+key, r.Header.Get(key))
	}
	w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	w.Header().Add("Set-Cookie", "token="+strings.ReplaceAll(said, " ", "+"))
	body := "<<" + said + ">>"
	kind := r.URL.Query().Get("kind")
	switch kind {
	case "json":
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		fmt.Fprintf(w, `{"said":%q}`, said)
	case "gzip":
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Encoding", "gzip")
		var b bytes.Buffer
		zw := gzip.NewWriter(&b)
		_, _ = io.WriteString(zw, body)
		zw.Close()
		_, _ = w.Write(b.Bytes())
	case "chunked", "events":
		w.Header().Set("Content-Type", map[string]string{"chunked": "text/html", "events": "text/event-stream"}[kind])
		w.Header().Set("Trailer", "X-Last")
		for _, b := range []byte(body) {
			_, _ = w.Write([]byte{b})
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set("X-Last", said)
	case "binary":
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = io.WriteString(w, body)
	case "large":
		w.Header().Set("Content-Type", "text/plain")
		body += strings.Repeat("-", 2*heldAnswer) + body
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = io.WriteString(w, body)
	case "file":
		http.ServeContent(w, r, "echo.bin", time.Time{}, strings.NewReader(body))
	case "hints":
		w.Header().Set("Link", "<"+strings.ReplaceAll(said, " ", "+")+">")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, body)
	}
}

// raw performs a request and returns everything that came back.
func (v *vault) raw(c *http.Client, r *http.Request) (*http.Response, string) {
	v.t.Helper()
	res, err := c.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil {
		v.t.Errorf("%s: read the answer: %v", r.URL, err)
	}
	if res.ContentLength >= 0 && r.Method != http.MethodHead && res.ContentLength != int64(len(body)) {
		v.t.Errorf("%s: the length is %d, and %d bytes arrived", r.URL, res.ContentLength, len(body))
	}
	head, _ := httputil.DumpResponse(res, false)
	return res, string(head) + string(body) + fmt.Sprint(res.Trailer)
}

func TestValueDoesNotComeBack(t *testing.T) {
	bearer := func(p string) string { return "Bearer " + p }
	basic := func(p string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+p)) }
	for _, c := range []struct {
		what, header string
		say          func(string) string
	}{{"bearer", "", bearer}, {"basic", "", basic}, {"own header", "X-Api-Key", bearer}} {
		v := newVault(t, bothy.Secret{Name: "KEY", Value: secretValue, Hosts: []string{"api.example"}, Header: c.header})
		placeholder := v.gateway.Placeholders()["KEY"]
		key := "Authorization"
		if c.header != "" {
			key = c.header
		}
		for _, http2 := range []bool{false, true} {
			for _, kind := range []string{"plain", "json", "gzip", "chunked", "events", "binary", "large", "file", "hints"} {
				r, _ := http.NewRequest("GET", "https://api.example/reflect?kind="+kind, nil)
				r.Header.Set(key, c.say(placeholder))
				r.Header.Set("Accept-Encoding", "gzip, br")
				for _, other := range []string{"Origin", "Idempotency-Key", "X-Request-Id", "User-Agent"} {
					r.Header.Set(other, "https://"+placeholder)
				}
				res, all := v.raw(v.client(http2), r)
				what := fmt.Sprintf("%s, h2 %v, %s", c.what, http2, kind)
				if got := v.last().Header.Get(key); got != c.say(secretValue) {
					t.Errorf("%s: the host got %q", what, got)
				}
				if leaks(all) {
					t.Errorf("%s: the value came back: %s", what, clip(all))
				}
				if got := res.Header.Get("Access-Control-Allow-Origin"); got != "https://"+placeholder {
					t.Errorf("%s: Origin came back as %q", what, got)
				}
				if got := res.Header.Get("X-Echo-" + key); got != c.say(placeholder) {
					t.Errorf("%s: the header came back as %q", what, got)
				}
				whole := "<<" + c.say(placeholder) + ">>"
				if kind != "json" && kind != "binary" && kind != "large" && kind != "file" && kind != "hints" && !strings.Contains(all, whole) {
					t.Errorf("%s: the placeholder was not restored: %s", what, clip(all))
				}
				if kind == "large" && (!strings.HasSuffix(strings.TrimSuffix(all, "map[]"), ">>") || strings.Count(all, "<<") != 2) {
					t.Errorf("%s: the body was cut", what)
				}
			}
		}
	}
}

// leaks reports whether the value can be recovered from what came back.
func leaks(all string) bool {
	if strings.Contains(all, secretValue) {
		return true
	}
	for i := range all {
		for _, n := range []int{24, 28, 32} {
			if i+n > len(all) {
				break
			}
			if b, err := base64.StdEncoding.DecodeString(all[i : i+n]); err == nil && strings.Contains(string(b), secretValue[:8]) {
				return true
			}
		}
	}
	return false
}

func TestLeaksDetectsALeak(t *testing.T) {
	if !leaks("x: Basic "+base64.StdEncoding.EncodeToString([]byte("me:"+secretValue))+"\r\n") || leaks("Basic "+base64.StdEncoding.EncodeToString([]byte("me:bothy-secret-KEY-0123"))) {
		t.Error("the test could not fail")
	}
}

// A client must not get the value through range requests, each of which returns too little of it to
// be recognized.
func TestValueDoesNotComeBackInPieces(t *testing.T) {
	v := newVault(t)
	placeholder := v.gateway.Placeholders()["KEY"]
	for _, method := range []string{"GET", "POST"} {
		var got strings.Builder
		for i := range 8 {
			r, _ := http.NewRequest(method, "https://api.example/reflect?kind=file", nil)
			if method == "POST" {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader("x")), 1
			}
			r.Header.Set("Authorization", placeholder)
			r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", 4*i, 4*i+3))
			res, all := v.raw(v.client(false), r)
			if res.StatusCode == http.StatusPartialContent {
				t.Errorf("%s: a range of a small answer was returned", method)
			}
			got.WriteString(all[strings.Index(all, "\r\n\r\n")+4:])
		}
		if strings.Contains(got.String(), secretValue) {
			t.Errorf("%s: the pieces give the value: %q", method, got.String())
		}
	}
	// Without a secret in the request, ranges work.
	r, _ := http.NewRequest("GET", "https://api.example/reflect?kind=file", nil)
	r.Header.Set("Range", "bytes=1-2")
	if res, all := v.raw(v.client(false), r); res.StatusCode != http.StatusPartialContent || !strings.Contains(all, "\r\n\r\n<>") {
		t.Errorf("a range without a secret: %s", all)
	}
}

func TestPlaceholderIsReplacedInCredentialHeadersOnly(t *testing.T) {
	for header, where := range map[string]string{"": "Authorization", "x-api-key": "X-Api-Key"} {
		v := newVault(t, bothy.Secret{Name: "KEY", Value: secretValue, Hosts: []string{"api.example"}, Header: header})
		placeholder := v.gateway.Placeholders()["KEY"]
		others := []string{"Origin", "Idempotency-Key", "X-Request-Id", "User-Agent", "Cookie", "Referer", "X-Other"}
		if header != "" {
			others = append(others, "Authorization")
		}
		args := []string{where, placeholder}
		for _, o := range others {
			args = append(args, o, placeholder)
		}
		if code, body := v.do(v.client(true), "https://api.example/v1?key="+placeholder, args...); code != 200 {
			t.Fatal(code, body)
		}
		r := v.last()
		if got := r.Header.Get(where); got != secretValue {
			t.Errorf("%s was sent as %q", where, got)
		}
		for _, o := range others {
			if got := r.Header.Get(o); got != placeholder {
				t.Errorf("%s was sent as %q", o, got)
			}
		}
		if got := r.URL.RawQuery; got != "key="+placeholder {
			t.Errorf("the query was sent as %q", got)
		}
		told := 0
		for _, d := range v.gateway.Log(time.Time{}) {
			if d.Rule == "secret:KEY" && strings.Contains(d.Reason, "left as it is") {
				told++
			}
		}
		if told != 1 {
			t.Errorf("the log has %d lines about placeholders that were not replaced", told)
		}
	}
}

func TestEveryCredentialHeader(t *testing.T) {
	v := newVault(t)
	placeholder := v.gateway.Placeholders()["KEY"]
	for _, key := range credentialHeaders {
		v.do(v.client(false), "https://api.example/", key, placeholder)
		if got := v.last().Header.Get(key); got != secretValue {
			t.Errorf("%s was sent as %q", key, got)
		}
	}
}

// After an upgrade the stream keeps its framing, but the value is removed.
func TestValueDoesNotComeBackOverWebSocket(t *testing.T) {
	v := newVault(t)
	c, err := v.dialName("api.example", 443)
	if err != nil {
		t.Fatal(err)
	}
	roots := v.ca.pool()
	roots.AppendCertsFromPEM(v.gateway.CAPEM())
	tc := tls.Client(c, &tls.Config{ServerName: "api.example", RootCAs: roots})
	_ = tc.SetDeadline(time.Now().Add(hangs))
	placeholder := v.gateway.Placeholders()["KEY"]
	fmt.Fprintf(tc, "GET /socket HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\nAuthorization: %s\r\n\r\n", placeholder)
	br := bufio.NewReader(tc)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("got %v, %v", res, err)
	}
	if got := v.last().Header.Get("Authorization"); got != secretValue {
		t.Errorf("the host got %q", got)
	}
	if got := v.last().Header.Get("Sec-WebSocket-Extensions"); got != "" {
		t.Errorf("the host was offered %q", got)
	}
	fmt.Fprint(tc, "hello")
	b, err := io.ReadAll(br)
	if want := "[hello" + strings.Repeat("*", len(secretValue)) + "]"; string(b) != want || err != nil {
		t.Errorf("got %q, %v, want %q", b, err, want)
	}
}

func TestScrubberWithReadsOfAnySize(t *testing.T) {
	forms := formsOf(secretValue, "PLACE")
	text := "a" + secretValue + secretValue[:9] + secretValue + "sk-live" + secretValue + "sk-"
	want := strings.ReplaceAll(text, secretValue, "PLACE")
	for size := 1; size < len(text); size++ {
		r := &scrubbedReader{src: &fewBytes{strings.NewReader(text), size}, scrubber: newScrubber(forms, false)}
		got, err := io.ReadAll(r)
		if string(got) != want || err != nil {
			t.Fatalf("%d bytes at a time: %q, %v", size, got, err)
		}
	}
}

type fewBytes struct {
	io.Reader
	n int
}

func (f *fewBytes) Read(p []byte) (int, error) { return f.Reader.Read(p[:min(len(p), f.n)]) }

func TestEveryFormOfAValueIsFound(t *testing.T) {
	const value = `p&ss "w<rd"/+=?` + "\u00e9"
	s := newScrubber(formsOf(value, "PLACE"), false)
	for _, text := range []string{
		value, "p%26ss+%22w%3Crd%22%2F%2B%3D%3F%C3%A9", "p&amp;ss &#34;w&lt;rd&#34;/+=?\u00e9", `p\u0026ss \"w\u003crd\"/+=?` + "\u00e9",
	} {
		if got, _ := s.clean(nil, []byte("<"+text+">"), true); string(got) != "<PLACE>" {
			t.Errorf("%s became %s", text, got)
		}
	}
	for _, before := range []string{"", "u", "us", "use"} {
		for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
			got, _ := s.clean(nil, []byte(e.EncodeToString([]byte(before+":"+value+"!"))), true)
			if plain, _ := e.DecodeString(strings.ReplaceAll(string(got), "*", "A")); strings.Contains(string(plain), value[1:6]) {
				t.Errorf("inside base64 after %q it became %s", before, got)
			}
		}
	}
	if len(formsOf("12345", "PLACE")) != 0 {
		t.Error("a value too short to be distinctive is searched for")
	}
}

func TestAcceptsGzip(t *testing.T) {
	for list, want := range map[string]bool{"gzip": true, "br, GZIP;q=0.5": true, "gzip;q=0": false, "br": false, "x-gzip": false, "gzip; q=0.0": false} {
		if acceptsGzip(list) != want {
			t.Errorf("%q: %v", list, !want)
		}
	}
}

func BenchmarkScrub(b *testing.B) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		r := &scrubbedReader{src: bytes.NewReader(body), scrubber: newScrubber(formsOf(secretValue, "PLACE"), true)}
		_, _ = io.Copy(io.Discard, r)
	}
}
