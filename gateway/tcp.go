package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// dialTime bounds one attempt to reach the outside.
	dialTime = 10 * time.Second
	// handshakeTime bounds the guest's part in setting up a connection.
	handshakeTime = 10 * time.Second
	// closingStep and closingTries bound how long a new connection waits for
	// an old one between the same ports.
	closingStep  = 50 * time.Microsecond
	closingTries = 2000
)

func addrPort(a tcpip.Address, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(a.As4()), port)
}

// dnsAddrPort is the only service of the gateway itself.
var dnsAddrPort = netip.AddrPortFrom(bothy.GatewayAddr, 53)

// admitTCP handles packets that belong to no connection. It returns false for those that are not
// allowed, which the stack answers with an immediate reset.
func (g *Gateway) admitTCP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	flags := header.TCP(pkt.TransportHeader().Slice()).Flags()
	if !flags.Contains(header.TCPFlagSyn) || flags.Contains(header.TCPFlagAck) {
		return false
	}
	dst := addrPort(id.LocalAddress, id.LocalPort)
	t := g.target(dst)
	p := g.currentPolicy()
	if dst == dnsAddrPort && p.mode != bothy.NetworkOff {
		return true
	}
	v := g.evaluate(p, t)
	if !v.allowed {
		g.lines.record(t.refused("tcp", v))
	}
	return v.allowed
}

// awaitClosed waits until the gateway's end of an earlier connection between the same ports is
// gone. The sandbox's kernel has closed its own end, since it would not reuse the port
// otherwise, and its closing packets came before the SYN, but may not have been processed yet. A
// SYN that met the old end would be dropped, and only be retransmitted after a second, or be
// answered with a reset.
func (g *Gateway) awaitClosed(id stack.TransportEndpointID) {
	for range closingTries {
		if !g.connected(id) {
			return
		}
		time.Sleep(closingStep)
	}
}

// connected reports whether the stack has an end of a connection that has been set up.
func (g *Gateway) connected(id stack.TransportEndpointID) bool {
	ep, ok := g.stack.FindTransportEndpoint(header.IPv4ProtocolNumber, header.TCPProtocolNumber, id, nicID).(*tcp.Endpoint)
	if !ok {
		return false
	}
	switch ep.EndpointState() {
	case tcp.StateInitial, tcp.StateBound, tcp.StateListen, tcp.StateConnecting, tcp.StateSynSent, tcp.StateSynRecv:
		return false
	}
	return true
}

// serveTCP carries one connection of the guest, from its SYN to its end.
func (g *Gateway) serveTCP(r *tcp.ForwarderRequest) {
	id := r.ID()
	dst := addrPort(id.LocalAddress, id.LocalPort)
	if dst == dnsAddrPort {
		g.serveDNSConn(r)
		return
	}
	t := g.target(dst)
	f, v := g.open("tcp", t)
	if f == nil {
		r.Complete(true)
		g.lines.record(t.refused("tcp", v))
		return
	}
	defer g.end(f)
	if t.standIn {
		g.serveName(f, v, r)
		return
	}
	g.serveAddress(f, v, r)
}

// serveAddress carries a connection to an address that is itself allowed.
func (g *Gateway) serveAddress(f *flow, v verdict, r *tcp.ForwarderRequest) {
	up, err := g.dial(f.ctx, "tcp", f.to.dst)
	if err != nil {
		r.Complete(true)
		g.lines.record(f.failed("tcp", v, err))
		return
	}
	guest := f.accept(r)
	if guest == nil {
		resetConn(up)
		return
	}
	g.lines.record(f.decision("tcp", v))
	err = f.carry(guest, up)
	g.lines.record(f.closing("tcp", v.rule, err))
}

// failed is the log line about an allowed connection that could not be made.
func (f *flow) failed(protocol string, v verdict, err error) bothy.NetworkDecision {
	d := f.decision(protocol, v)
	d.Reason = "could not connect: " + plainError(err)
	if reason := f.whyRevoked(); reason != "" {
		d.Allowed, d.Rule, d.Reason = false, "", reason
	}
	d.Closed = true
	return d
}

// plainError returns err without the addresses of the other end and of the host's resolver. The
// sandbox may see it.
func plainError(err error) string {
	var name *net.DNSError
	if errors.As(err, &name) {
		return "the name could not be looked up"
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timed out"
	}
	return strings.TrimPrefix(err.Error(), "connect: ")
}

// dial connects to an address that the guard has seen.
func (g *Gateway) dial(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	if reason := g.guard.check(to.Addr()); reason != "" {
		return nil, errors.New("the address is " + reason)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	return g.dialer.DialContext(ctx, network, to.String())
}

// accept completes the handshake with the guest. It returns nil if the guest left or the flow
// was revoked.
func (f *flow) accept(r *tcp.ForwarderRequest) *guestConn {
	if f.ctx.Err() != nil {
		r.Complete(true)
		return nil
	}
	var wq waiter.Queue
	ep, err := shakeHands(f.ctx, r, &wq)
	r.Complete(err != nil)
	if err != nil {
		return nil
	}
	bound(ep, f.rank, openFlows.Load())
	b := wide
	if f.rank >= wideConns {
		b = narrow
	}
	c := newGuestConn(&wq, ep, b)
	f.onRevoke(c.abort)
	return c
}

// shakeHands is r.CreateEndpoint, but ends when ctx does.
func shakeHands(ctx context.Context, r *tcp.ForwarderRequest, wq *waiter.Queue) (tcpip.Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	shaken := make(chan struct{})
	defer close(shaken)
	defer context.AfterFunc(ctx, func() { wake(wq, shaken) })()
	ep, terr := r.CreateEndpoint(wq)
	if terr != nil {
		return nil, errors.New(terr.String())
	}
	return ep, nil
}

// wake makes waiters on wq check their endpoint again, until done.
func wake(wq *waiter.Queue, done <-chan struct{}) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		default:
			wq.Notify(waiter.WritableEvents)
		}
		select {
		case <-done:
			return
		case <-tick.C:
		}
	}
}

// carry copies both ways until both ends are done, and forwards a half-close as a half-close and
// a reset as a reset.
func (f *flow) carry(guest *guestConn, up net.Conn) error {
	f.onRevoke(func() { resetConn(up) })
	sent := make(chan error, 1)
	go func() {
		err := guest.sendTo(up, f.out.add)
		if err == nil {
			err = closeWrite(up)
		}
		if err != nil {
			guest.abort()
			resetConn(up)
		}
		sent <- err
	}()
	err := guest.receiveFrom(up, nil, f.in.add)
	if err == nil {
		err = guest.CloseWrite()
	}
	if err != nil {
		guest.abort()
		resetConn(up)
	}
	if serr := <-sent; serr != nil && (err == nil || errors.Is(err, net.ErrClosed)) {
		err = serr
	}
	_ = up.Close()
	guest.Close()
	if err != nil {
		return fmt.Errorf("ended early: %s", plainError(err))
	}
	return nil
}
