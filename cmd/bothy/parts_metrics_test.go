package main

import (
	"net/http/httptest"
	"testing"
)

func TestFromHere(t *testing.T) {
	for _, c := range []struct {
		remote, header string
		want           bool
	}{
		{"127.0.0.1:4000", "", true},
		{"[::1]:4000", "", true},
		{"[::ffff:127.0.0.1]:4000", "", true},
		{"192.0.2.7:4000", "", false},
		{"127.0.0.1:4000", "X-Forwarded-For", false},
		{"127.0.0.1:4000", "Forwarded", false},
		{"", "", false},
	} {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.RemoteAddr = c.remote
		if c.header != "" {
			r.Header.Set(c.header, "192.0.2.7")
		}
		if got := fromHere(r); got != c.want {
			t.Errorf("%s with %q: %v", c.remote, c.header, got)
		}
	}
}
