package gateway

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
	"testing"
)

func TestClientHelloParser(t *testing.T) {
	hello := clientHello(t, "good.example")
	sni, used, err := parseHello(append(hello, 1, 2, 3))
	if sni != "good.example" || used != len(hello) || err != nil {
		t.Fatalf("got %q, %d, %v", sni, used, err)
	}
	for i := range len(hello) {
		if _, _, err := parseHello(hello[:i]); err != errShort {
			t.Fatalf("the first %d bytes: %v", i, err)
		}
	}
	if sni, _, err := parseHello(clientHello(t, "GOOD.Example")); err != nil || sni != "good.example" {
		t.Errorf("capitals: %q, %v", sni, err)
	}
	if _, _, err := parseHello(clientHello(t, "")); err != errNoSNI {
		t.Errorf("no name: %v", err)
	}
	if _, _, err := parseHello(withExtension(hello, extServerName, []byte("\x00\x0b\x00\x00\x08evil.org"))); err != errBadSNI {
		t.Errorf("two extensions: %v", err)
	}
	none := clientHello(t, "")
	for what, body := range map[string]string{
		"two names":     "\x00\x0e\x00\x00\x04a.bc\x00\x00\x04d.ef",
		"an empty name": "\x00\x03\x00\x00\x00",
		"another kind":  "\x00\x07\x01\x00\x04a.bc",
		"bytes after":   "\x00\x07\x00\x00\x04a.bcX",
		"a zero byte":   "\x00\x07\x00\x00\x04a.b\x00",
		"not ASCII":     "\x00\x07\x00\x00\x04a.b\xff",
		"a wildcard":    "\x00\x07\x00\x00\x04*.bc",
	} {
		if _, _, err := parseHello(withExtension(none, extServerName, []byte(body))); err != errBadSNI {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := parseHello(withExtension(hello, extECH, []byte{0})); err != errECH {
		t.Errorf("encrypted name: %v", err)
	}
	huge := append([]byte{recordHandshake, 3, 1, 0x40, 0, clientHelloMessage, 1, 0, 0}, make([]byte, 1<<14)...)
	if _, _, err := parseHello(huge); err != errHelloTooLong {
		t.Errorf("a message of 64 KB: %v", err)
	}
	many := strings.Repeat("\x16\x03\x01\x00\x01\x01", 1) + strings.Repeat("\x16\x03\x01\x00\x01\x00", maxHello/6)
	if _, _, err := parseHello([]byte(many)); err == nil || err == errShort {
		t.Errorf("endless records: %v", err)
	}
}

func FuzzClientHello(f *testing.F) {
	f.Add(clientHello(f, "good.example"))
	f.Add(withExtension(clientHello(f, "good.example"), extECH, []byte{1, 2, 3}))
	f.Fuzz(func(t *testing.T, b []byte) {
		sni, used, err := parseHello(b)
		if err == nil && (used > len(b) || sni == "") {
			t.Errorf("%q, %d of %d", sni, used, len(b))
		}
	})
}

func TestRequestParserRefusesAmbiguousRequests(t *testing.T) {
	for what, head := range map[string]string{
		"plain":             "GET / HTTP/1.1\r\nHost: good.example\r\n",
		"port":              "GET / HTTP/1.1\r\nHost: good.example:8080\r\n",
		"absolute":          "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n",
		"absolute capitals": "GET HTTP://GOOD.example:80/ HTTP/1.1\r\nHost: good.example\r\n",
		"asterisk":          "OPTIONS * HTTP/1.1\r\nHost: good.example\r\n",
		"1.0 with Host":     "GET / HTTP/1.0\r\nHost: good.example\r\n",
		"length":            "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 0\r\n",
	} {
		if r, err := parseRequest([]byte(head + "\r\n")); err != nil || r.host != "good.example" {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, head := range map[string]string{
		"no Host":                  "GET / HTTP/1.1\r\n",
		"two Hosts":                "GET / HTTP/1.1\r\nHost: good.example\r\nHost: evil.example\r\n",
		"two equal Hosts":          "GET / HTTP/1.1\r\nHost: good.example\r\nhost: good.example\r\n",
		"Host list":                "GET / HTTP/1.1\r\nHost: good.example, evil.example\r\n",
		"empty Host":               "GET / HTTP/1.1\r\nHost:\r\n",
		"Host with user":           "GET / HTTP/1.1\r\nHost: good.example@evil.example\r\n",
		"Host with bad port":       "GET / HTTP/1.1\r\nHost: good.example:80:90\r\n",
		"IPv6 Host":                "GET / HTTP/1.1\r\nHost: [::1]\r\n",
		"space before colon":       "GET / HTTP/1.1\r\nHost : good.example\r\n",
		"folded line":              "GET / HTTP/1.1\r\nHost: good.example\r\n X: y\r\n",
		"bare line feed":           "GET / HTTP/1.1\r\nHost: good.example\r\nA: b\nHost: evil.example\r\n",
		"bare return":              "GET / HTTP/1.1\r\nHost: good.example\r\nA: b\rHost: evil.example\r\n",
		"zero byte":                "GET / HTTP/1.1\r\nHost: good.example\x00\r\n",
		"other absolute":           "GET http://evil.example/ HTTP/1.1\r\nHost: good.example\r\n",
		"absolute with user":       "GET http://good.example@evil.example/ HTTP/1.1\r\nHost: good.example\r\n",
		"absolute https":           "GET https://good.example/ HTTP/1.1\r\nHost: good.example\r\n",
		"relative target":          "GET evil.example HTTP/1.1\r\nHost: good.example\r\n",
		"CONNECT":                  "CONNECT good.example:443 HTTP/1.1\r\nHost: good.example\r\n",
		"HTTP/2":                   "PRI * HTTP/2.0\r\n",
		"HTTP/0.9":                 "GET /\r\n",
		"no method":                " / HTTP/1.1\r\nHost: good.example\r\n",
		"two spaces":               "GET  / HTTP/1.1\r\nHost: good.example\r\n",
		"tab":                      "GET\t/ HTTP/1.1\r\nHost: good.example\r\n",
		"both lengths":             "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n",
		"two lengths":              "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 3\r\nContent-Length: 4\r\n",
		"length list":              "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 3, 3\r\n",
		"signed length":            "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: +3\r\n",
		"negative length":          "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: -3\r\n",
		"empty length":             "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length:\r\n",
		"huge length":              "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 99999999999999999999\r\n",
		"other coding":             "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: gzip, chunked\r\n",
		"chunked twice":            "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
		"chunked in 1.0":           "POST / HTTP/1.0\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n",
		"hidden coding":            "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding : chunked\r\n",
		"a coding that looks like": "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: \x0bchunked\r\n",
	} {
		if r, err := parseRequest([]byte(head + "\r\n")); err == nil {
			t.Errorf("%s: parsed as a request for %s", what, r.host)
		}
	}
}

// FuzzRequest checks that another HTTP parser never reads a head that the gateway accepted as a
// request for another host or with another length.
func FuzzRequest(f *testing.F) {
	for _, head := range []string{
		"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n",
		"GET http://good.example/ HTTP/1.1\r\nHost: good.example:80\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 3\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n",
		"OPTIONS * HTTP/1.0\r\nHost: good.example\r\nX:\t y \r\n\r\n",
	} {
		f.Add([]byte(head))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n := headEnd(b)
		if n == 0 {
			return
		}
		r, err := parseRequest(b[:n])
		if err != nil {
			return
		}
		other, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(r.head)))
		if err != nil {
			return
		}
		if host, ok := hostOf(other.Host); !ok || host != r.host {
			t.Errorf("the host is %q, and to another parser %q", r.host, other.Host)
		}
		if chunked := len(other.TransferEncoding) > 0; chunked != (r.body == bodyChunked) {
			t.Errorf("chunked is %v, and to another parser %v", r.body == bodyChunked, chunked)
		} else if !chunked && other.ContentLength != r.length {
			t.Errorf("the length is %d, and to another parser %d", r.length, other.ContentLength)
		}
	})
}

func TestUpgradesOtherThanWebSocketAreRemoved(t *testing.T) {
	r, err := parseRequest([]byte("GET / HTTP/1.1\r\nHost: good.example\r\nConnection: keep-alive, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\nX: y\r\n\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := "GET / HTTP/1.1\r\nHost: good.example\r\nConnection: keep-alive\r\nX: y\r\n\r\n"
	if string(r.head) != want || r.webSocket {
		t.Errorf("got %q", r.head)
	}
}

func TestChunkSizes(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "1f": 31, "1F;a=b": 31, "1f ": 31, "000a": 10} {
		if n, err := parseChunkSize(s); err != nil || n != want {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	}
	for _, s := range []string{"", "+1", "-1", "0x1", "1_0", "g", " 1", "fffffffffffffffff", ";a"} {
		if n, err := parseChunkSize(s); err == nil {
			t.Errorf("%q: %d", s, n)
		}
	}
}
