// Package keepalive sends requests to HTTP servers in sandboxes, over connections that it keeps
// for the next request. The connections of a machine belong only to its Conns, and those of a
// port serve only that port. Package lifecycle has a Conns for each machine; package api asks
// which requests may use it.
//
// Not every request may. One with a body is followed by whatever the server did not read of it,
// which the server would take for the next request; one that is not idempotent cannot be sent
// again if the server closes a connection at the moment at which it is used. Those use
// connections of their own: see Keepable.
package keepalive

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// idleTime is how long a connection waits for another request. It is short, so that a server
	// that serves one connection after the other is not blocked by an idle one, and shorter than
	// the time after which servers close.
	idleTime = time.Second
	// The most idle connections: for a port, for a machine, and in all.
	idlePerPort, idlePerMachine, idleInAll = 32, 64, 1024
)

// A Dialer connects to a port of one machine. Only a connection that has a method Quiet is kept:
// it reports that neither bytes nor an end of stream are pending.
type Dialer func(ctx context.Context, port uint16) (net.Conn, error)

type quieter interface{ Quiet() bool }

// Pool bounds the idle connections of all machines together.
type Pool struct {
	clock bothy.Clock
	idle  atomic.Int64
}

// NewPool returns a pool without machines.
func NewPool(clock bothy.Clock) *Pool { return &Pool{clock: clock} }

// Idle is the number of idle connections.
func (p *Pool) Idle() int { return int(p.idle.Load()) }

// enter counts one more idle connection, unless there are too many.
func (p *Pool) enter() bool {
	if p.idle.Add(1) <= idleInAll {
		return true
	}
	p.idle.Add(-1)
	return false
}

// Conns are the connections to one machine.
type Conns struct {
	pool *Pool
	dial Dialer

	mu     sync.Mutex
	ports  map[uint16]*port
	idle   int
	stop   func() bool // ends the timer that closes connections that were idle for too long
	closed bool
}

// Machine returns the connections of a machine, of which there are none yet.
func (p *Pool) Machine(dial Dialer) *Conns {
	return &Conns{pool: p, dial: dial, ports: map[uint16]*port{}}
}

// Keepable reports whether a request may use a connection that serves others before and after
// it.
func Keepable(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodOptions {
		return false
	}
	if r.ContentLength != 0 || r.Body != nil && r.Body != http.NoBody {
		return false
	}
	h := r.Header
	return h.Get("Upgrade") == "" && h.Get("Expect") == "" && !ofConnection(h.Get("Authorization"))
}

// ofConnection recognises the authentication schemes that identify a connection rather than the
// sender of a request.
func ofConnection(authorization string) bool {
	scheme, _, _ := strings.Cut(authorization, " ")
	return strings.EqualFold(scheme, "NTLM") || strings.EqualFold(scheme, "Negotiate")
}

// RoundTrip sends a request for which Keepable holds to a port. An idle connection that turns
// out to be closed, or no longer to speak HTTP, is replaced by a new one. The answer's body must
// be closed.
func (m *Conns) RoundTrip(req *http.Request, number uint16) (*http.Response, error) {
	if c := m.take(number); c != nil {
		res, err := c.exchange(req)
		if err == nil && !saysIdle(res) {
			return res, nil
		}
		if err == nil {
			res.Body.Close()
		}
		if cause := context.Cause(req.Context()); cause != nil {
			return nil, cause
		}
	}
	nc, err := m.dial(req.Context(), number)
	if err != nil {
		return nil, err
	}
	return newConn(m, nc, number).exchange(req)
}

// saysIdle recognises what some servers send when they close a connection that was idle for too
// long. It is not an answer to a request.
func saysIdle(res *http.Response) bool {
	return res.StatusCode == http.StatusRequestTimeout && res.Close
}
