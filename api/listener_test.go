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
	"github.com/bothy-dev/bothy/inflight"
)

// called is a connection from an address.
type called struct {
	net.Conn
	from   string
	closed bool
}

func (c *called) RemoteAddr() net.Addr {
	a, _ := net.ResolveTCPAddr("tcp", c.from)
	return a
}
func (c *called) Close() error { c.closed = true; return nil }

// Whoever opens connections and does nothing with them shuts nobody out: their own
// give way first, and none on which somebody works.
func TestIdleConnectionsGiveWay(t *testing.T) {
	l := newBounded(nil, 100, 0)
	victim := &called{from: "192.0.2.7:1"}
	v := l.admit(victim)
	working := &called{from: "203.0.113.1:1"}
	connState(l.admit(working), http.StateActive)
	var greedy []*called
	for i := range 1000 {
		c := &called{from: fmt.Sprintf("203.0.113.1:%d", i+2)}
		greedy = append(greedy, c)
		if l.admit(c) == nil {
			t.Fatal("a connection was refused")
		}
	}
	if len(l.conns) > 100 {
		t.Errorf("%d connections", len(l.conns))
	}
	if victim.closed || working.closed || !greedy[0].closed || greedy[999].closed {
		t.Errorf("closed: victim %v, working %v, the first %v, the last %v", victim.closed, working.closed, greedy[0].closed, greedy[999].closed)
	}
	connState(v, http.StateActive)
	if c := l.admit(&called{from: "198.51.100.1:1"}); c == nil || c.beyond {
		t.Error("a newcomer was not let in")
	}
}

func TestConnectionsPerAddress(t *testing.T) {
	l := newBounded(nil, 1000, 3)
	take := func(from string, n int, active bool) (beyond int) {
		for i := range n {
			c := l.admit(&called{from: fmt.Sprintf(from, i+1)})
			if active {
				connState(c, http.StateActive)
			}
			if c.beyond {
				beyond++
			}
		}
		return beyond
	}
	for name, c := range map[string]struct {
		from   string
		active bool
		want   int
	}{
		"idle ones give way":       {"192.0.2.1:%d", false, 0},
		"busy ones do not":         {"192.0.2.2:%d", true, 7},
		"a network of IPv6 is one": {"[2001:db8::%d]:1", true, 7},
		"this host has no bound":   {"127.0.0.1:%d", true, 0},
	} {
		if got := take(c.from, 10, c.active); got != c.want {
			t.Errorf("%s: %d of 10 were too many, want %d", name, got, c.want)
		}
	}
}

// Where all connections are at work, a newcomer is told so; the operator gets in, and
// so does everybody when there is room again.
func TestNewcomerIsToldThatAllIsFull(t *testing.T) {
	big := inflight.Bounds{Total: 1 << 40, Project: 1 << 40}
	f := start(t, within(big, big, big), func(s *Server) { s.config.Connections = 2 })
	var streams []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", f.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
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
	for end := time.Now().Add(20 * time.Second); ask(apitest.Stranger) != 200; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("there is no room again")
		}
	}
}
