package middleware

import (
	"fmt"
	"net"
	"net/http"
	"testing"
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

// A client that opens connections without using them does not shut others out: its own idle ones are
// closed first, and never one in use.
func TestIdleConnectionsGiveWay(t *testing.T) {
	l := Bound(nil, 100, 0)
	victim := &called{from: "192.0.2.7:1"}
	v := l.admit(victim)
	working := &called{from: "203.0.113.1:1"}
	ConnState(l.admit(working), http.StateActive)
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
	ConnState(v, http.StateActive)
	if c := l.admit(&called{from: "198.51.100.1:1"}); c == nil || c.beyond {
		t.Error("a newcomer was not let in")
	}
}

func TestConnectionsPerAddress(t *testing.T) {
	l := Bound(nil, 1000, 3)
	take := func(from string, n int, active bool) (beyond int) {
		for i := range n {
			c := l.admit(&called{from: fmt.Sprintf(from, i+1)})
			if active {
				ConnState(c, http.StateActive)
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
