package cluster

import (
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What is sent to a host that was cut off is sent again by the kernel for a quarter of an hour
// before the connection fails, and all the while a request is not answered, and a sandbox that is
// being sent stands still. A time-out of the socket would end a connection as well whose other end
// lives and does not read, as that of a terminal nobody looks at. So it is looked what the
// kernel knows of each connection.

const (
	// connLook is how often connections are looked at, and deafTime after what time without any
	// sign of life, with something sent deafSends times, one has failed.
	connLook  = 2 * time.Second
	deafTime  = 8 * time.Second
	deafSends = 4
)

// keepAlive is for connections over which nothing is sent.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3}

// watchedConns ends connections whose other end is not there any more.
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

// watch has a connection ended when its other end is gone.
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

// look looks at all connections for as long as there are some.
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
			if c.deaf() {
				c.fail()
			}
		}
	}
}

// deaf reports whether the other end has said nothing to what was sent again and again: data, or
// the question whether there is room for more.
func (c *watchedConn) deaf() (deaf bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		deaf = err == nil && max(i.Retransmits, i.Probes) >= deafSends && time.Duration(i.Last_ack_recv)*time.Millisecond >= deafTime
	})
	return deaf
}

// fail ends a connection at once: what waits for it is told.
func (c *watchedConn) fail() {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// watchedListener watches the connections that are made to it.
type watchedListener struct {
	net.Listener
	conns watchedConns
}

// Listen listens for other hosts.
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
