package api

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

func TestWhereARequestComesFrom(t *testing.T) {
	s := &Server{config: Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.1.0.0/16")}}}
	for _, c := range []struct {
		name, from, forwarded, proto string
		remote, scheme               string
	}{
		{"nobody between", "127.0.0.1:4000", "", "", "127.0.0.1", "http"},
		{"a proxy", "127.0.0.1:4000", "192.0.2.7", "https", "192.0.2.7", "https"},
		{"a proxy, over IPv6", "[::ffff:127.0.0.1]:4000", "2001:db8::1", "https", "2001:db8::1", "https"},
		{"two proxies", "127.0.0.1:4000", "192.0.2.7, 10.1.2.3", "http, https", "192.0.2.7", "https"},
		{"a client that says it is another", "127.0.0.1:4000", "198.51.100.1, 192.0.2.7", "", "192.0.2.7", "http"},
		{"a client that says it is a proxy's", "127.0.0.1:4000", "198.51.100.1, 10.1.9.9, 192.0.2.7", "", "192.0.2.7", "http"},
		{"no proxy", "203.0.113.5:4000", "192.0.2.7", "https", "203.0.113.5", "http"},
		{"with a port", "127.0.0.1:4000", "192.0.2.7:99", "", "192.0.2.7", "http"},
		{"nonsense", "127.0.0.1:4000", "unknown", "gopher", "127.0.0.1", "http"},
		{"nonsense before an address", "127.0.0.1:4000", "<script>, 192.0.2.7", "", "192.0.2.7", "http"},
		{"a proxy alone", "127.0.0.1:4000", "10.1.2.3", "", "10.1.2.3", "http"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.from
		for name, value := range map[string]string{"X-Forwarded-For": c.forwarded, "X-Forwarded-Proto": c.proto} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		remote, scheme := s.sender(r)
		r.RemoteAddr = remote
		if got := remoteOf(r); got != c.remote || scheme != c.scheme {
			t.Errorf("%s: from %s by %s, want %s by %s", c.name, got, scheme, c.remote, c.scheme)
		}
	}
}

// What the audit, the log and servers in sandboxes are told is the client's address
// behind a trusted proxy, and nobody's mere claim otherwise.
func TestForwardedAddressIsRecorded(t *testing.T) {
	for _, trusted := range []bool{true, false} {
		f := start(t, func(s *Server) {
			if trusted {
				s.config.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
			}
		})
		want := "127.0.0.1"
		if trusted {
			want = "192.0.2.7"
		}
		f.world.Server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(r.Header.Get("X-Forwarded-For") + " " + r.Header.Get("X-Forwarded-Proto") + " " + r.Header.Get("X-Real-Ip")))
		})
		forwarded := header{"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https", "X-Real-Ip": "192.0.2.9"}
		path := f.create()
		res := f.ok(200, f.do("GET", path+"/ports/8080/", nil, forwarded))
		if proto := map[bool]string{true: "https", false: "http"}[trusted]; res.body != want+" "+proto+" " {
			t.Errorf("trusted %v: the sandbox is told %q", trusted, res.body)
		}
		f.failed(bothy.CodeUnauthenticated, f.do("GET", "/v1/sandboxes", nil, forwarded, header{"Authorization": ""}))
		records := f.audits.Records()
		if got := records[len(records)-1].Remote; got != want {
			t.Errorf("trusted %v: the audit says %s", trusted, got)
		}
		if strings.Contains(f.logged.String(), `"remote":"192.0.2.7"`) != trusted {
			t.Errorf("trusted %v: %s", trusted, f.logged)
		}
	}
}
