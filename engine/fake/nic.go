package fake

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/bothy-dev/bothy"
)

const (
	mtu = 1500
	// backlog is how many frames wait on the network device. Two full windows of TCP fit.
	backlog = 2048
)

// plug is one end of a network device in memory.
type plug struct {
	in, out chan []byte
	closed  chan struct{}
	once    *sync.Once
}

// newNetDevice returns both ends; closing one closes both.
func newNetDevice() (host, guest *plug) {
	a, b := make(chan []byte, backlog), make(chan []byte, backlog)
	closed, once := make(chan struct{}), &sync.Once{}
	return &plug{in: a, out: b, closed: closed, once: once}, &plug{in: b, out: a, closed: closed, once: once}
}

func (p *plug) ReadFrame(b []byte) (int, error) {
	select {
	case f := <-p.in:
		return copy(b, f), nil
	case <-p.closed:
		return 0, net.ErrClosed
	}
}

// WriteFrame drops the frame if the other end has not taken those before.
func (p *plug) WriteFrame(pieces ...[]byte) error {
	select {
	case <-p.closed:
		return net.ErrClosed
	default:
	}
	select {
	case p.out <- slices.Concat(pieces...):
	default:
	}
	return nil
}

func (p *plug) MTU() int { return mtu }

func (p *plug) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// nic is the inside of a machine: a TCP/IP stack at the sandbox's address.
type nic struct {
	dev   *plug
	stack *stack.Stack
	link  *channel.Endpoint
	stop  context.CancelFunc
	done  sync.WaitGroup
	ls    []net.Listener
}

func newNIC(dev *plug) *nic {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	n := &nic{dev: dev, stack: s, link: channel.New(256, mtu+header.EthernetMinimumSize, tcpip.LinkAddress(bothy.GuestMAC[:]))}
	s.CreateNIC(1, ethernet.New(n.link))
	s.AddProtocolAddress(1, tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(bothy.GuestAddr.As4()), PrefixLen: bothy.SandboxPrefix.Bits()},
	}, stack.AddressProperties{})
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, Gateway: tcpip.AddrFrom4(bothy.GatewayAddr.As4()), NIC: 1}})
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.done.Go(func() { n.transmit(ctx) })
	n.done.Go(n.receive)
	return n
}

func (n *nic) transmit(ctx context.Context) {
	for {
		pkt := n.link.ReadContext(ctx)
		if pkt == nil {
			return
		}
		err := n.dev.WriteFrame(pkt.AsSlices()...)
		pkt.DecRef()
		if err != nil {
			return
		}
	}
}

func (n *nic) receive() {
	b := make([]byte, mtu+header.EthernetMinimumSize)
	for {
		l, err := n.dev.ReadFrame(b)
		if err != nil {
			return
		}
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(b[:l])})
		n.link.InjectInbound(0, pkt)
		pkt.DecRef()
	}
}

func (n *nic) listen(port uint16) (net.Listener, error) {
	l, err := gonet.ListenTCP(n.stack, tcpip.FullAddress{NIC: 1, Port: port}, ipv4.ProtocolNumber)
	if err == nil {
		n.ls = append(n.ls, l)
	}
	return l, err
}

// forward passes connections to all ports on. A port to which dial does not connect is closed.
func (n *nic) forward(dial func(port uint16) (net.Conn, error)) {
	f := tcp.NewForwarder(n.stack, 0, backlog, func(r *tcp.ForwarderRequest) {
		inner, err := dial(r.ID().LocalPort)
		if err != nil {
			r.Complete(true)
			return
		}
		var queue waiter.Queue
		end, refused := r.CreateEndpoint(&queue)
		r.Complete(refused != nil)
		if refused != nil {
			inner.Close()
			return
		}
		join(gonet.NewTCPConn(&queue, end), inner)
	})
	n.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, f.HandlePacket)
}

// join copies both ways, and ends with both directions.
func join(a, b net.Conn) {
	defer a.Close()
	defer b.Close()
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		ways.Go(func() {
			from, to := way[0], way[1]
			if _, err := io.Copy(to, from); err != nil {
				from.Close()
				to.Close()
				return
			}
			if c, ok := to.(interface{ CloseWrite() error }); ok {
				_ = c.CloseWrite()
			}
		})
	}
	ways.Wait()
}

func (n *nic) close() {
	for _, l := range n.ls {
		l.Close()
	}
	n.stop()
	n.dev.Close()
	n.done.Wait()
	n.stack.Destroy()
}
