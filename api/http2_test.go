package api

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bothy-dev/bothy/api/apitest"
)

// overHTTP2 lets a fixture's server speak TLS, and its client HTTP/2. It returns the number of
// connections that the client has opened.
func overHTTP2(t *testing.T) (*fixture, *atomic.Int32) {
	pair := httptest.NewTLSServer(nil)
	t.Cleanup(pair.Close)
	f := start(t, func(s *setup) {
		s.config.TLS = &tls.Config{Certificates: pair.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
	})
	var opened atomic.Int32
	transport := pair.Client().Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2 = true
	dial := net.Dialer{}
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		opened.Add(1)
		return dial.DialContext(ctx, network, addr)
	}
	f.client = &http.Client{Transport: transport}
	return f, &opened
}

// Over HTTP/2, one caller's streams share a connection: what ends one leaves the others alone,
// and WebSockets open connections of their own.
func TestHTTP2(t *testing.T) {
	f, opened := overHTTP2(t)
	path := f.create()
	res := f.open(t.Context(), "GET", "/v1/events", nil, asEvents)
	if res.ProtoMajor != 2 {
		t.Fatal(res.Proto)
	}
	admin := f.as(apitest.Admin).open(t.Context(), "GET", "/v1/events", nil, asEvents)
	exec := f.open(t.Context(), "POST", path+"/exec", `{"command":"wait"}`, asEvents)
	f.ok(200, f.do("PUT", path+"/files?path=a", strings.NewReader(strings.Repeat("x", 1<<20))))
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	terminal, _ := f.dial(path + "/terminal")
	readUntil(t, terminal, "\r\n")
	f.tokens.End(writerID, errRevoked)
	<-f.world.Canceled
	closedFor(t, terminal)
	for _, ended := range []*http.Response{res, exec} {
		if text, err := io.ReadAll(ended.Body); err != nil || !strings.Contains(string(text), "this API key was revoked") {
			t.Errorf("%q, %v", text, err)
		}
	}
	f.as(apitest.Admin).create()
	if _, err := bufio.NewReader(admin.Body).ReadString('\n'); err != nil {
		t.Error(err)
	}
	if n := opened.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}
