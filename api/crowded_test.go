package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/api/inflight"
)

// When all connections are in use, a new one is refused with a reason, except for the operator's. When
// there is room again all are accepted.
func TestNewConnectionsAreRefusedWhenAllAreBusy(t *testing.T) {
	big := inflight.Bounds{Total: 1 << 40, Project: 1 << 40}
	f := start(t, within(big, big, big), func(s *setup) { s.config.Connections = 2 })
	var streams []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", f.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(c, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n\r\n", apitest.Stranger)
		if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		streams = append(streams, c)
	}
	ask := func(key string) int {
		f.client.CloseIdleConnections()
		g := f.as(key)
		res, err := f.client.Do(g.request("GET", "/v1/sandboxes", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode == 429 && res.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		return res.StatusCode
	}
	if got := ask(apitest.Stranger); got != 429 {
		t.Errorf("a tenant got %d", got)
	}
	if got := ask(apitest.Writer); got != 200 {
		t.Errorf("the operator got %d", got)
	}
	for _, c := range streams {
		c.Close()
	}
	for end := time.Now().Add(time.Minute); ask(apitest.Stranger) != 200; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("there is no room again")
		}
	}
}
