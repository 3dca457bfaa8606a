package gateway

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// udpIdle is how long a UDP association lives without a datagram.
	udpIdle = time.Minute
	// maxUDP bounds the associations of one sandbox.
	maxUDP = 1024
)

// handleUDP handles datagrams that belong to no association. It returns false for those that are
// not allowed, which the stack answers with "port unreachable".
func (g *Gateway) handleUDP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	t := g.target(addrPort(id.LocalAddress, id.LocalPort))
	f, v := g.openUDP(t)
	if f == nil {
		g.lines.record(t.refused(udpName(t.dst.Port()), v))
		return false
	}
	var wq waiter.Queue
	ep, err := udp.NewForwarderRequest(g.stack, id, pkt).CreateEndpoint(&wq)
	if err != nil {
		g.endUDP(f)
		return false
	}
	go g.serveUDP(f, v, &guestConn{ep: ep, wq: &wq, buffers: datagrams})
	return true
}

// udpName is the log's name for UDP to a port.
func udpName(port uint16) string {
	if port == 443 {
		return "quic"
	}
	return "udp"
}

// openUDP registers a UDP association if the policy allows it. Names are reached only over TCP:
// a datagram contains nothing that the gateway could check, and QUIC hides its server name.
func (g *Gateway) openUDP(t target) (*flow, verdict) {
	if t.standIn {
		return nil, refuse("named hosts are reached over TCP only")
	}
	f, v := g.open("udp", t)
	if f == nil {
		return nil, v
	}
	g.mu.Lock()
	full := g.udp >= maxUDP
	g.udp++
	g.mu.Unlock()
	if full {
		g.endUDP(f)
		return nil, refuse("the sandbox has too many UDP associations (%d)", maxUDP)
	}
	return f, v
}

func (g *Gateway) endUDP(f *flow) {
	g.mu.Lock()
	g.udp--
	g.mu.Unlock()
	g.end(f)
}

func (g *Gateway) serveUDP(f *flow, v verdict, guest *guestConn) {
	defer g.endUDP(f)
	name := udpName(f.to.dst.Port())
	up, err := g.dial(f.ctx, "udp", f.to.dst)
	if err != nil {
		guest.ep.Close()
		g.lines.record(f.failed(name, v, err))
		return
	}
	g.lines.record(f.decision(name, v))
	g.carryUDP(f, guest, up)
	g.lines.record(f.closing(name, v.rule, nil))
}

// carryUDP copies datagrams both ways until none came for udpIdle.
func (g *Gateway) carryUDP(f *flow, guest *guestConn, up net.Conn) {
	end := sync.OnceFunc(func() {
		_ = up.Close()
		guest.ep.Close()
	})
	f.onRevoke(end)
	idle := newIdleTimer(g.clock, udpIdle, end)
	defer idle.stop()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		defer end()
		_ = guest.sendTo(lossy{up}, func(n int) { idle.touch(); f.out.add(n) })
	}()
	guest.receiveDatagrams(up, func(n int) { idle.touch(); f.in.add(n) })
	end()
	<-sent
}

// lossy is a connection on which a failed write is a lost datagram.
type lossy struct{ net.Conn }

func (l lossy) Write(p []byte) (int, error) {
	if _, err := l.Conn.Write(p); errors.Is(err, net.ErrClosed) {
		return 0, err
	}
	return len(p), nil
}

// receiveDatagrams sends the guest what arrives at up, until up is closed.
func (c *guestConn) receiveDatagrams(up net.Conn, count func(int)) {
	entry, ready := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventHUp | waiter.EventErr)
	c.wq.EventRegister(&entry)
	defer c.wq.EventUnregister(&entry)
	r := newPatientReader(up, c.buffers)
	for {
		b, err := r.read()
		if err == nil {
			err = c.writeAll(b, ready)
			count(len(b))
		}
		r.release()
		if err != nil && err != io.EOF && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EHOSTUNREACH) {
			return
		}
	}
}

// idleTimer calls end if touch was not called for a while.
type idleTimer struct {
	clock bothy.Clock
	after time.Duration
	end   func()
	last  atomic.Int64

	mu     sync.Mutex
	cancel func() bool
	done   bool
}

func newIdleTimer(clock bothy.Clock, after time.Duration, end func()) *idleTimer {
	t := &idleTimer{clock: clock, after: after, end: end}
	t.touch()
	t.arm(after)
	return t
}

func (t *idleTimer) touch() { t.last.Store(t.clock.Now().UnixNano()) }

func (t *idleTimer) arm(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.done {
		t.cancel = t.clock.AfterFunc(d, t.check)
	}
}

func (t *idleTimer) check() {
	left := t.after - t.clock.Now().Sub(time.Unix(0, t.last.Load()))
	if left <= 0 {
		t.end()
		return
	}
	t.arm(left)
}

func (t *idleTimer) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = true
	t.cancel()
}

// refusedPacket logs a packet that was dropped at the link.
func (g *Gateway) refusedPacket(protocol string, dst tcpip.Address, port uint16, reason string) {
	g.lines.record(bothy.NetworkDecision{
		Protocol: protocol, Address: dst.String(), Port: port, Reason: reason,
	})
}
