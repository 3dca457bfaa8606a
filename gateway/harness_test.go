package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// memNetDevice is one end of a network device in memory. Frames that the other end does not read in
// time are dropped, as on a real one.
type memNetDevice struct {
	in, out chan []byte
	mtu     int
	once    sync.Once
	closed  chan struct{}
}

func newNetDevice(mtu int) (host, guest *memNetDevice) {
	a, b := make(chan []byte, 4096), make(chan []byte, 4096)
	host = &memNetDevice{in: a, out: b, mtu: mtu, closed: make(chan struct{})}
	guest = &memNetDevice{in: b, out: a, mtu: mtu, closed: make(chan struct{})}
	return host, guest
}

func (c *memNetDevice) ReadFrame(p []byte) (int, error) {
	select {
	case f := <-c.in:
		return copy(p, f), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *memNetDevice) WriteFrame(pieces ...[]byte) error {
	select {
	case <-c.closed:
		return net.ErrClosed
	default:
	}
	select {
	case c.out <- slices.Concat(pieces...):
	default:
	}
	return nil
}

func (c *memNetDevice) MTU() int { return c.mtu }

func (c *memNetDevice) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

var guestMAC = mac(bothy.GuestMAC)

// guest is a sandbox's kernel: a regular TCP/IP stack at 10.0.0.2, and the bare end of the network
// device for tests that send forged frames.
type guest struct {
	t     testing.TB
	stack *stack.Stack
	link  *channel.Endpoint
	dev   *memNetDevice
}

func newGuest(t testing.TB, dev *memNetDevice) *guest {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocolCUBIC, udp.NewProtocol, icmp.NewProtocol4},
	})
	g := &guest{t: t, stack: s, dev: dev, link: channel.New(1024, uint32(dev.mtu)+ethernetSize, tcpip.LinkAddress(guestMAC[:]))}
	if err := s.CreateNIC(1, ethernet.New(g.link)); err != nil {
		t.Fatal(err)
	}
	s.AddProtocolAddress(1, tcpip.ProtocolAddress{
		Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{Address: guestAddress, PrefixLen: 24},
	}, stack.AddressProperties{})
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, Gateway: gatewayAddress, NIC: 1}})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { g.transmit(ctx) })
	wg.Go(g.receive)
	t.Cleanup(func() {
		cancel()
		dev.Close()
		wg.Wait()
		s.Destroy()
	})
	return g
}

func (g *guest) transmit(ctx context.Context) {
	for {
		pkt := g.link.ReadContext(ctx)
		if pkt == nil {
			return
		}
		_ = g.dev.WriteFrame(pkt.AsSlices()...)
		pkt.DecRef()
	}
}

func (g *guest) receive() {
	b := make([]byte, g.dev.mtu+ethernetSize)
	for {
		n, err := g.dev.ReadFrame(b)
		if err != nil {
			return
		}
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(b[:n])})
		g.link.InjectInbound(0, pkt)
		pkt.DecRef()
	}
}

// hangs is how long tests wait for something that must happen. It is generous because the machine
// may be busy.
const hangs = time.Minute

// dial connects from inside to an address, and returns an error for a refusal.
func (g *guest) dial(to string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(g.t.Context(), hangs)
	defer cancel()
	a := netip.MustParseAddrPort(to)
	c, err := gonet.DialContextTCP(ctx, g.stack, tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFrom4(a.Addr().As4()), Port: a.Port()}, ipv4.ProtocolNumber)
	if err != nil {
		return nil, err
	}
	g.t.Cleanup(func() { c.Close() })
	return c, nil
}

func (g *guest) mustDial(to string) net.Conn {
	g.t.Helper()
	c, err := g.dial(to)
	if err != nil {
		g.t.Fatalf("dial %s from inside: %v", to, err)
	}
	return c
}

// dialUDP opens a connected UDP socket inside.
func (g *guest) dialUDP(to string) net.Conn {
	g.t.Helper()
	a := netip.MustParseAddrPort(to)
	c, err := gonet.DialUDP(g.stack, nil, &tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFrom4(a.Addr().As4()), Port: a.Port()}, ipv4.ProtocolNumber)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	return c
}

func (g *guest) listen(port uint16) net.Listener {
	g.t.Helper()
	l, err := gonet.ListenTCP(g.stack, tcpip.FullAddress{NIC: 1, Addr: guestAddress, Port: port}, ipv4.ProtocolNumber)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { l.Close() })
	return l
}

// internet is the outside world: names and addresses that lead to servers on the test's loopback.
// It records what was dialled and looked up.
type internet struct {
	t testing.TB

	mu      sync.Mutex
	names   map[string][]netip.Addr
	hosts   map[string]string
	dialled []string
	asked   []string
}

func newInternet(t testing.TB) *internet {
	return &internet{t: t, names: map[string][]netip.Addr{}, hosts: map[string]string{}}
}

func (i *internet) name(name string, addrs ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.names[name] = nil
	for _, a := range addrs {
		i.names[name] = append(i.names[name], netip.MustParseAddr(a))
	}
}

// serve has fn serve the connections to an address, such as "5.6.7.8:80".
func (i *internet) serve(addr string, fn func(net.Conn)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		i.t.Fatal(err)
	}
	i.at("tcp", addr, l.Addr())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { fn(c) })
		}
	})
	i.t.Cleanup(func() { l.Close(); wg.Wait() })
}

func (i *internet) at(network, addr string, real net.Addr) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hosts[network+" "+addr] = real.String()
}

func (i *internet) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	i.mu.Lock()
	i.dialled = append(i.dialled, network+" "+address)
	real := i.hosts[network+" "+address]
	i.mu.Unlock()
	if real == "" {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return (&net.Dialer{}).DialContext(ctx, network, real)
}

func (i *internet) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked = append(i.asked, host)
	addrs, ok := i.names[host[:len(host)-1]]
	if !ok {
		return nil, &net.DNSError{Name: host, Err: "no such host", IsNotFound: true}
	}
	return slices.Clone(addrs), nil
}

// seen returns what was dialled and looked up so far.
func (i *internet) seen() (dialled, asked []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.dialled), slices.Clone(i.asked)
}

func echo(c net.Conn) {
	defer c.Close()
	_, _ = io.Copy(c, c)
}

// lab is a sandbox behind a gateway, and an internet.
type lab struct {
	*guest
	gateway *Gateway
	net     *internet
}

func newLab(t testing.TB, change ...func(*Options)) *lab {
	t.Helper()
	outside := newInternet(t)
	o := Options{Dialer: outside, Resolver: outside, HostAddrs: ownHostAddrs}
	for _, c := range change {
		c(&o)
	}
	host, inside := newNetDevice(65000)
	g, err := New(host, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("close the gateway: %v", err)
		}
	})
	return &lab{guest: newGuest(t, inside), gateway: g, net: outside}
}

// ownHostAddrs are the addresses of the host in tests: one private, one public.
func ownHostAddrs() ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.168.7.7"), netip.MustParseAddr("9.9.9.9")}, nil
}

func (l *lab) policy(n bothy.Network) {
	l.t.Helper()
	if err := l.gateway.SetPolicy(n); err != nil {
		l.t.Fatal(err)
	}
}

// ping sends a line over c and expects it back.
func ping(c net.Conn, line string) error {
	_ = c.SetDeadline(time.Now().Add(hangs))
	if _, err := c.Write([]byte(line)); err != nil {
		return err
	}
	b := make([]byte, len(line))
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != line {
		return fmt.Errorf("sent %q, got %q", line, b)
	}
	return nil
}

// eventually waits for something that another goroutine is about to do.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(hangs); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("it did not happen: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
