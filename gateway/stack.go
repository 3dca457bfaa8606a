package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	nicID = 1
	// The buffers of one connection, in each direction. These are limits: memory is only used
	// for data that the other side has not read yet.
	bufferMin     = 4 << 10
	bufferDefault = 256 << 10
	bufferMax     = 1 << 20
	// bufferBudget is roughly how much all connections together may hold in each direction. When
	// there are many, new ones get smaller buffers.
	bufferBudget = 16 << 20
	bufferShare  = 16 << 10
	// serverBuffers is the same for the connections of all sandboxes of this process together.
	serverBuffers = 256 << 20
	// maxHandshakes bounds the connections that are being set up.
	maxHandshakes = 2048
)

var (
	gatewayAddress = tcpip.AddrFrom4(bothy.GatewayAddr.As4())
	guestAddress   = tcpip.AddrFrom4(bothy.GuestAddr.As4())
)

// newStack makes the TCP/IP stack behind g's link. It accepts packets for every address, because
// every destination of the guest ends here.
func newStack(g *Gateway) (*stack.Stack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocolCUBIC, udp.NewProtocol},
	})
	if err := setUpStack(s, g); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func setUpStack(s *stack.Stack, g *Gateway) error {
	tuning := []tcpip.SettableTransportProtocolOption{
		&tcpip.TCPSendBufferSizeRangeOption{Min: bufferMin, Default: bufferDefault, Max: bufferMax},
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: bufferMin, Default: bufferDefault, Max: bufferMax},
		ptr(tcpip.TCPSACKEnabled(true)),
		ptr(tcpip.TCPModerateReceiveBufferOption(true)),
		// A network device delivers in order, so no segment of an old connection can reach a new
		// one: there is nothing to wait for. See awaitClosed.
		ptr(tcpip.TCPTimeWaitTimeoutOption(0)),
		ptr(tcpip.TCPLingerTimeoutOption(15 * time.Second)),
	}
	for _, o := range tuning {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return fmt.Errorf("gateway: tune TCP: %s", err)
		}
	}
	if err := s.CreateNIC(nicID, g.link); err != nil {
		return fmt.Errorf("gateway: attach the network device: %s", err)
	}
	addr := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: gatewayAddress.WithPrefix()}
	if err := s.AddProtocolAddress(nicID, addr, stack.AddressProperties{}); err != nil {
		return fmt.Errorf("gateway: set the address: %s", err)
	}
	if err := s.SetPromiscuousMode(nicID, true); err != nil {
		return fmt.Errorf("gateway: take all addresses: %s", err)
	}
	if err := s.SetSpoofing(nicID, true); err != nil {
		return fmt.Errorf("gateway: answer from all addresses: %s", err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nicID}})
	forward := tcp.NewForwarder(s, bufferDefault, maxHandshakes, func(r *tcp.ForwarderRequest) {
		g.serveTCP(r)
	})
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		return g.admitTCP(id, pkt) && forward.HandlePacket(id, pkt)
	})
	s.SetTransportProtocolHandler(udp.ProtocolNumber, g.handleUDP)
	return nil
}

// openFlows counts the connections of all gateways.
var openFlows atomic.Int64

// bound gives ep its share of the buffer budgets, given n open connections of its sandbox and
// all those of all sandboxes.
func bound(ep tcpip.Endpoint, n int, all int64) {
	share := max(bufferShare, bufferBudget/max(n, 1))
	share = min(share, max(bufferMin, serverBuffers/int(max(all, 1))))
	if share < bufferMax {
		ep.SocketOptions().SetReceiveBufferSize(int64(share), true)
		ep.SocketOptions().SetSendBufferSize(int64(share), true)
	}
}

func ptr[T any](v T) *T { return &v }

// dialPatience is how long one attempt to reach the guest may take before the next starts.
// Otherwise a packet that is lost while the guest's network comes up would cost TCP's first
// time-out of a second.
const dialPatience = 25 * time.Millisecond

// Dial connects to a port of the guest, from the gateway's address. It works in
// every mode.
func (g *Gateway) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	for patience := dialPatience; ; patience = min(2*patience, 2*time.Second) {
		try, cancel := context.WithTimeout(ctx, patience)
		c, err := g.dialOnce(try, port)
		cancel()
		if err == nil {
			return c, nil
		}
		if g.ctx.Err() != nil {
			return nil, net.ErrClosed
		}
		if ctx.Err() != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: guestAddr(port), Err: ctx.Err()}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
	}
}

func (g *Gateway) dialOnce(ctx context.Context, port uint16) (net.Conn, error) {
	var wq waiter.Queue
	ep, terr := g.stack.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, &wq)
	if terr != nil {
		return nil, dialError(port, terr)
	}
	entry, ready := waiter.NewChannelEntry(waiter.WritableEvents)
	wq.EventRegister(&entry)
	defer wq.EventUnregister(&entry)
	if terr = ep.Bind(tcpip.FullAddress{NIC: nicID, Addr: gatewayAddress}); terr == nil {
		terr = ep.Connect(tcpip.FullAddress{NIC: nicID, Addr: guestAddress, Port: port})
	}
	if _, started := terr.(*tcpip.ErrConnectStarted); started {
		select {
		case <-ready:
			terr = ep.LastError()
		case <-ctx.Done():
			ep.Abort()
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: guestAddr(port), Err: os.ErrDeadlineExceeded}
		case <-g.ctx.Done():
			ep.Abort()
			return nil, net.ErrClosed
		}
	}
	if terr != nil {
		ep.Close()
		return nil, dialError(port, terr)
	}
	return newGuestConn(&wq, ep, wide), nil
}

func guestAddr(port uint16) net.Addr {
	return &net.TCPAddr{IP: bothy.GuestAddr.AsSlice(), Port: int(port)}
}

// dialError gives a refused connection the error that callers look for.
func dialError(port uint16, terr tcpip.Error) error {
	var err error
	switch terr.(type) {
	case *tcpip.ErrConnectionRefused, *tcpip.ErrConnectionReset:
		err = syscall.ECONNREFUSED
	default:
		err = errors.New(terr.String())
	}
	return &net.OpError{Op: "dial", Net: "tcp", Addr: guestAddr(port), Err: err}
}
