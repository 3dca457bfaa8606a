package middleware

import (
	"net/http/httptest"
	"net/netip"
	"testing"
)

func TestWhereARequestComesFrom(t *testing.T) {
	s := &Chain{Options: Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.1.0.0/16")}}}
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
		if got := RemoteOf(r); got != c.remote || scheme != c.scheme {
			t.Errorf("%s: from %s by %s, want %s by %s", c.name, got, scheme, c.remote, c.scheme)
		}
	}
}
