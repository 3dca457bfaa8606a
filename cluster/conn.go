package cluster

import (
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel retransmits to an unreachable host for a quarter of an hour before a connection
// fails. Until then a request gets no answer, and a sandbox on the move stays frozen. A socket
// timeout would also end connections whose other end is alive but does not read, such as an
// idle terminal. So what the kernel knows about each connection is checked instead.

const (
	// connLook is how often connections are checked. A connection has failed if something was
	// sent deafSends times and for deafTime nothing came back.
	connLook  = 2 * time.Second
	deafTime  = 8 * time.Second
	deafSends = 4
)

// keepAlive detects the failure of idle connections.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3}

// watchedConns closes connections whose other end is gone.
type watchedConns struct {
	mu      sync.Mutex
	all     map[*watchedConn]bool
	looking bool
}

type watchedConn struct {
	*net.TCPConn
	in   *watchedConns
	once sync.Once
}

// watch closes c once its other end is gone.
func (w *watchedConns) watch(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	x := &watchedConn{TCPConn: tcp, in: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[*watchedConn]bool{}
	}
	w.all[x] = true
	if !w.looking {
		w.looking = true
		go w.look()
	}
	return x
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	c.once.Do(func() {
		c.in.mu.Lock()
		defer c.in.mu.Unlock()
		delete(c.in.all, c)
	})
	return c.TCPConn.Close()
}

// look checks all connections for as long as there are any.
func (w *watchedConns) look() {
	for {
		time.Sleep(connLook)
		w.mu.Lock()
		if len(w.all) == 0 {
			w.looking = false
			w.mu.Unlock()
			return
		}
		all := make([]*watchedConn, 0, len(w.all))
		for c := range w.all {
			all = append(all, c)
		}
		w.mu.Unlock()
		for _, c := range all {
			if c.unresponsive() {
				c.fail()
			}
		}
	}
}

// unresponsive reports whether the other end acknowledged neither retransmitted data nor window probes.
func (c *watchedConn) unresponsive() (unresponsive bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		unresponsive = err == nil && max(i.Retransmits, i.Probes) >= deafSends && time.Duration(i.Last_ack_recv)*time.Millisecond >= deafTime
	})
	return unresponsive
}

// fail resets a connection, so that pending reads and writes return an error at once.
func (c *watchedConn) fail() {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// watchedListener watches the connections that it accepts.
type watchedListener struct {
	net.Listener
	conns watchedConns
}

// Listen wraps the listener for other hosts.
func Listen(l net.Listener) net.Listener { return &watchedListener{Listener: l} }

// Accept implements net.Listener.
func (l *watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive)
	}
	return l.conns.watch(c), nil
}
