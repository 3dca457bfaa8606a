package middleware

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// spareConns is how many connections are accepted beyond the limit, in order to say why they are
// refused, and for the operator.
const spareConns = 64

// overLimitRetry is after how long a client whose connection was refused should retry.
const overLimitRetry = 2 * time.Second

// bounded is a listener that limits the number of connections. A connection without a request in
// progress gives way to a new one: first those of the address that has the most, and of these
// the oldest. So a client that only holds connections open does not lock others out.
type bounded struct {
	net.Listener
	max, perAddr int

	mu     sync.Mutex
	conns  map[*boundedConn]struct{}
	counts map[netip.Addr]int
	serial uint64
}

// boundedConn is one of the connections.
type boundedConn struct {
	net.Conn
	l      *bounded
	from   netip.Addr
	serial uint64
	closed sync.Once

	// Guarded by l.mu: whether it is beyond the limit, and whether a request is in progress.
	beyond, active bool
}

func Bound(l net.Listener, most, perAddr int) *bounded {
	return &bounded{Listener: l, max: most, perAddr: perAddr, conns: map[*boundedConn]struct{}{}, counts: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (l *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(conn); c != nil {
			return c, nil
		}
		_ = conn.Close()
	}
}

// admit accepts a connection, for which another one may have to be closed. It returns nil if
// there is no room at all.
func (l *bounded) admit(conn net.Conn) *boundedConn {
	c := &boundedConn{Conn: conn, l: l, from: addrOf(conn)}
	l.mu.Lock()
	var out []*boundedConn
	switch {
	case l.overAddr(c.from, 1):
		out = l.oldest(c.from)
		c.beyond = len(out) == 0
	case len(l.conns) >= l.max:
		out = l.oldest(l.busiestIdleAddr())
		c.beyond = len(out) == 0
	}
	full := len(out) == 0 && len(l.conns) >= l.max+spareConns
	if !full {
		l.serial++
		c.serial = l.serial
		l.conns[c] = struct{}{}
		l.counts[c.from]++
	}
	l.mu.Unlock()
	for _, o := range out {
		_ = o.Close()
	}
	if full {
		return nil
	}
	return c
}

// overAddr reports whether an address has too many connections with n more.
func (l *bounded) overAddr(from netip.Addr, more int) bool {
	return l.perAddr > 0 && !from.IsLoopback() && l.counts[from]+more > l.perAddr
}

// busiestIdleAddr returns the address that has the most connections without a request in progress.
func (l *bounded) busiestIdleAddr() (addr netip.Addr) {
	idle, most := map[netip.Addr]int{}, 0
	for c := range l.conns {
		if c.active {
			continue
		}
		if idle[c.from]++; idle[c.from] > most {
			addr, most = c.from, idle[c.from]
		}
	}
	return addr
}

// oldest returns the oldest part of an address's connections without a request in progress:
// several at once, so that not every new connection has to search.
func (l *bounded) oldest(from netip.Addr) []*boundedConn {
	var idle []*boundedConn
	for c := range l.conns {
		if c.from == from && !c.active {
			idle = append(idle, c)
		}
	}
	slices.SortFunc(idle, func(a, b *boundedConn) int { return cmp.Compare(a.serial, b.serial) })
	return idle[:min(len(idle), 1+len(idle)/16)]
}

// stillOverLimit reports whether a connection that was beyond the limit still is.
func (l *bounded) stillOverLimit(c *boundedConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.beyond = c.beyond && (len(l.conns) > l.max || l.overAddr(c.from, 0))
	return c.beyond
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.closed.Do(func() {
		c.l.mu.Lock()
		defer c.l.mu.Unlock()
		delete(c.l.conns, c)
		if c.l.counts[c.from]--; c.l.counts[c.from] <= 0 {
			delete(c.l.counts, c.from)
		}
	})
	return c.Conn.Close()
}

// CloseWrite lets net/http end a connection gently.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// addrOf returns the address of a connection: for IPv6 the network, since a client has all of
// its addresses.
func addrOf(conn net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	a := at.Addr().Unmap()
	if a.Is6() && !a.IsLoopback() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

func boundedOf(conn net.Conn) *boundedConn {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, _ := conn.(*boundedConn)
	return c
}

// ConnState records on which connections requests are in progress. Hijacked connections count as
// such until they are closed.
func ConnState(conn net.Conn, state http.ConnState) {
	if c := boundedOf(conn); c != nil {
		c.l.mu.Lock()
		defer c.l.mu.Unlock()
		c.active = state == http.StateActive || state == http.StateHijacked
	}
}

type connKey struct{}

func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, boundedOf(conn))
}

// refuseOverLimit refuses a request on a connection beyond the limit, except the operator's.
func (s *Chain) refuseOverLimit(r *http.Request, caller *bothy.Caller) error {
	c, _ := r.Context().Value(connKey{}).(*boundedConn)
	if c == nil || caller.IsOperator() || !c.l.stillOverLimit(c) {
		return nil
	}
	e := bothy.Errorf(bothy.CodeRateLimited, "there are too many connections to this server").
		WithHint("Try again in some seconds, and use connections again instead of opening new ones. The operator sets the bounds, under `inflight` in the settings.")
	e.RetryAfter = overLimitRetry
	return e
}
