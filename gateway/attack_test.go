package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// An attack is a way for code in a sandbox to reach a forbidden destination. try returns nil when
// the attack worked. Each attack must work from an open sandbox, so that its refusal means
// something, and fail in modes restricted and off.
type attack struct {
	name string
	// allow lists the networks that the operator must allow for the attack to work at all.
	allow []string
	try   func(l *lab) error
}

// onlyGood is the policy of the restricted sandbox under attack.
var onlyGood = only("good.example", "*.wild.example")

func TestAttacksFromInside(t *testing.T) {
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			t.Run("works from open", func(t *testing.T) {
				l := newBattlefield(t, a.allow...)
				l.policy(open)
				if err := a.try(l); err != nil {
					t.Fatalf("the attack does not work at all: %v", err)
				}
			})
			for _, n := range []bothy.Network{onlyGood, off} {
				t.Run("fails from "+string(n.Mode), func(t *testing.T) {
					l := newBattlefield(t, a.allow...)
					l.policy(n)
					if err := a.try(l); err == nil {
						t.Fatal("the attack worked")
					}
				})
			}
		})
	}
}

const (
	goodAddr = "5.6.7.8"
	evilAddr = "6.6.6.6"
)

// newBattlefield is a lab whose internet has a good host, an evil host at its own address and at
// the good host's, and services at addresses that a sandbox must not reach.
func newBattlefield(t testing.TB, allow ...string) *lab {
	l := newLab(t, func(o *Options) { o.Allow = prefixes(allow...) })
	ca := newAuthority(t)
	l.net.name("good.example", goodAddr)
	l.net.name("evil.example", goodAddr)
	l.net.name("other.example", evilAddr)
	l.net.name("metadata.example", "169.254.169.254")
	l.net.name("rebound.example", "127.0.0.1")
	l.net.name("mapped.example", "::ffff:127.0.0.1")
	for _, addr := range []string{goodAddr, evilAddr} {
		l.net.serve(addr+":443", echoTLS(t, ca))
		l.net.serve(addr+":80", serveHTTP(sayHostOrTunnel))
		l.net.serve(addr+":8443", echo)
		l.net.serve(addr+":853", echo)
		l.net.serve(addr+":53", echo)
	}
	for _, addr := range []string{"169.254.169.254:80", "10.0.0.3:22", "192.168.7.7:7700", "192.168.1.1:80"} {
		l.net.serve(addr, serveHTTP(sayHost))
	}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	go echoPackets(pc)
	for _, port := range []string{":53", ":443", ":9999"} {
		l.net.at("udp", evilAddr+port, pc.LocalAddr())
	}
	return l
}

// sayHostOrTunnel is a web server that is also an open proxy.
func sayHostOrTunnel(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		w.WriteHeader(http.StatusOK)
		return
	}
	sayHost(w, r)
}

func echoPackets(pc net.PacketConn) {
	b := make([]byte, 65536)
	for {
		n, from, err := pc.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = pc.WriteTo(b[:n], from)
	}
}

var attacks = []attack{
	{name: "raw address", try: func(l *lab) error { return l.tryTLS(evilAddr+":443", "evil.example") }},
	{name: "raw address with an allowed server name", try: func(l *lab) error { return l.tryTLS(evilAddr+":443", "good.example") }},
	{name: "raw address of an allowed host", try: func(l *lab) error { return l.tryTLS(goodAddr+":443", "good.example") }},
	{name: "raw address with an allowed Host", try: func(l *lab) error { return l.tryHTTPAt(evilAddr+":80", get("good.example", "/loot"), "/loot") }},
	{name: "a name that is not on the list", try: func(l *lab) error { return l.tryNamed("other.example", 443, "other.example") }},
	{name: "another port of an allowed host", try: func(l *lab) error { return l.tryEcho("good.example", 8443) }},
	{name: "DNS tunnel through long names", try: func(l *lab) error {
		secret := strings.Repeat("x", 60)
		l.query("udp", secret+".tunnel.example", dns.TypeTXT)
		l.query("udp", secret+".tunnel.example", dns.TypeA)
		_, _ = l.queryAt("tcp", "10.0.0.1:53", secret+".tunnel.example", dns.TypeA)
		if _, asked := l.net.seen(); len(asked) == 0 {
			return errors.New("no query left the host")
		}
		return nil
	}},
	{name: "another resolver over UDP", try: func(l *lab) error { return l.tryUDP(evilAddr + ":53") }},
	{name: "another resolver over TCP", try: func(l *lab) error { return l.tryRaw(evilAddr + ":53") }},
	{name: "another resolver over TLS", try: func(l *lab) error { return l.tryRaw(evilAddr + ":853") }},
	{name: "an allowed name's address as a resolver", try: func(l *lab) error { return l.tryEcho("good.example", 53) }},
	{name: "DNS over HTTPS at a raw address", try: func(l *lab) error { return l.tryTLS(evilAddr+":443", "dns.other.example") }},
	{name: "QUIC", try: func(l *lab) error { return l.tryUDP(evilAddr + ":443") }},
	{name: "a datagram", try: func(l *lab) error { return l.tryUDP(evilAddr + ":9999") }},
	{name: "another server name at a shared address", try: func(l *lab) error { return l.tryNamed("good.example", 443, "evil.example") }},
	{name: "no server name", try: func(l *lab) error { return l.tryNamed("good.example", 443, "") }},
	{name: "another server name in many records", try: func(l *lab) error {
		c, err := l.dialName("good.example", 443)
		if err != nil {
			return err
		}
		return pingTLS(&fragmenter{Conn: c, size: 3}, "evil.example")
	}},
	{name: "another protocol on port 80", try: func(l *lab) error { return l.tryHTTP("SSH-2.0-tunnel\r\n\r\n", "400 Bad Request") }},
	{name: "HTTP/2 without TLS", try: func(l *lab) error { return l.tryHTTP("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 200") }},
	{name: "CONNECT", try: func(l *lab) error {
		return l.tryHTTP("CONNECT evil.example:443 HTTP/1.1\r\nHost: good.example\r\n\r\n", "HTTP/1.1 200")
	}},
	{name: "another Host", try: func(l *lab) error { return l.tryHTTP(get("evil.example", "/loot"), "/loot") }},
	{name: "another Host in the second request", try: func(l *lab) error {
		return l.tryHTTP(get("good.example", "/a")+get("evil.example", "/loot"), "/loot")
	}},
	{name: "another Host after a body", try: func(l *lab) error {
		return l.tryHTTP("POST /a HTTP/1.1\r\nHost: good.example\r\nContent-Length: 3\r\n\r\nabc"+get("evil.example", "/loot"), "/loot")
	}},
	{name: "another Host after a chunked body", try: func(l *lab) error {
		return l.tryHTTP("POST /a HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"+get("evil.example", "/loot"), "/loot")
	}},
	{name: "another host in the request target", try: func(l *lab) error {
		return l.tryHTTP("GET http://evil.example/loot HTTP/1.1\r\nHost: good.example\r\n\r\n", "evil.example /loot")
	}},
	{name: "a Host in spaces and capitals", try: func(l *lab) error {
		return l.tryHTTP("GET /loot HTTP/1.1\r\nhOsT:\t EVIL.example. \r\n\r\n", "/loot")
	}},
	{name: "no Host", try: func(l *lab) error { return l.tryHTTP("GET /loot HTTP/1.0\r\n\r\n", "/loot") }},
	{name: "an upgrade that is none", try: func(l *lab) error {
		return l.tryHTTP("GET /a HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+get("evil.example", "/loot"), "/loot")
	}},
	{name: "metadata service", allow: []string{"169.254.169.254/32"}, try: func(l *lab) error {
		return l.tryHTTPAt("169.254.169.254:80", get("169.254.169.254", "/loot"), "/loot")
	}},
	{name: "neighbour sandbox", allow: []string{"10.0.0.3/32"}, try: func(l *lab) error {
		return l.tryHTTPAt("10.0.0.3:22", get("neighbour", "/loot"), "/loot")
	}},
	{name: "the host's own server", allow: []string{"192.168.7.7/32"}, try: func(l *lab) error {
		return l.tryHTTPAt("192.168.7.7:7700", get("host", "/loot"), "/loot")
	}},
	{name: "private network", allow: []string{"192.168.0.0/16"}, try: func(l *lab) error {
		return l.tryHTTPAt("192.168.1.1:80", get("router", "/loot"), "/loot")
	}},
}

// tryTLS speaks TLS to an address.
func (l *lab) tryTLS(addr, sni string) error {
	c, err := l.dial(addr)
	if err != nil {
		return err
	}
	return pingTLS(c, sni)
}

// tryNamed looks a name up and connects to its address over TLS with another server name.
func (l *lab) tryNamed(name string, port int, sni string) error {
	c, err := l.dialName(name, port)
	if err != nil {
		return err
	}
	return pingTLS(c, sni)
}

func (l *lab) tryEcho(name string, port int) error {
	c, err := l.dialName(name, port)
	if err != nil {
		return err
	}
	return ping(c, "hello")
}

func (l *lab) tryRaw(addr string) error {
	c, err := l.dial(addr)
	if err != nil {
		return err
	}
	return ping(c, "hello")
}

func (l *lab) tryUDP(addr string) error {
	c := l.dialUDP(addr)
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 5))
	return err
}

// tryHTTP sends bytes to the good host and looks for loot in the answer.
func (l *lab) tryHTTP(send, loot string) error {
	got, err := l.exchange("good.example", 80, send)
	if strings.Contains(got, loot) {
		return nil
	}
	return fmt.Errorf("got %q, %v", got, err)
}

func (l *lab) tryHTTPAt(addr, send, loot string) error {
	c, err := l.dial(addr)
	if err != nil {
		return err
	}
	return expect(c, send, loot)
}

// expect sends bytes and reads until want arrives.
func expect(c net.Conn, send, want string) error {
	_ = c.SetDeadline(time.Now().Add(hangs))
	if _, err := io.WriteString(c, send); err != nil {
		return err
	}
	var got []byte
	for b := make([]byte, 1024); ; {
		n, err := c.Read(b)
		got = append(got, b[:n]...)
		if strings.Contains(string(got), want) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("got %q, %w", got, err)
		}
	}
}

// No policy allows these destinations, so they fail in mode open too.
func TestForbiddenDestinationsFailInEveryMode(t *testing.T) {
	everything := bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{"*.example"}, AllowCIDRs: prefixes("0.0.0.0/0"), AllowPorts: []uint16{22, 80, 443, 7700}}
	for _, n := range []bothy.Network{open, everything, off} {
		l := newBattlefield(t)
		l.policy(n)
		for _, name := range []string{"metadata.example", "rebound.example", "mapped.example"} {
			if got, err := l.exchange(name, 80, get(name, "/loot")); strings.Contains(got, "/loot") {
				t.Errorf("%s: reached %s: %q, %v", n.Mode, name, got, err)
			}
		}
		if dialled, _ := l.net.seen(); len(dialled) > 0 {
			t.Errorf("%s: the gateway dialled %v", n.Mode, dialled)
		}
	}
}

func TestForbiddenAddressesAreNeverDialled(t *testing.T) {
	for _, n := range []bothy.Network{open, {Mode: bothy.NetworkRestricted, AllowCIDRs: prefixes("0.0.0.0/0")}} {
		c, g := newRawLab(t, n)
		for _, addr := range []string{
			"169.254.169.254", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.255", "10.9.9.9", "127.0.0.1", "127.1.2.3", "192.168.1.1", "192.168.7.7",
			"172.16.0.1", "172.31.255.255", "100.64.0.1", "0.0.0.0", "0.1.2.3", "224.0.0.1", "239.1.1.1", "255.255.255.255", "240.0.0.1",
			"192.0.0.8", "9.9.9.9",
		} {
			answers(t, c, syn("10.0.0.2", addr, 80, guestMAC), datagram("10.0.0.2", addr, 80, guestMAC))
		}
		outside := g.dialer.(*internet)
		if dialled, _ := outside.seen(); len(dialled) > 0 {
			t.Errorf("%s: the gateway dialled %v", n.Mode, dialled)
		}
		answers(t, c, syn("10.0.0.2", "8.8.8.8", 80, guestMAC))
		eventually(t, "an address that is not forbidden is dialled", func() bool {
			dialled, _ := outside.seen()
			return len(dialled) == 1
		})
	}
}

func TestRebindingAfterTheLookupIsCaught(t *testing.T) {
	clock := newManualClock()
	l := newLab(t, func(o *Options) { o.Clock = clock })
	l.net.serve("5.6.7.8:80", serveHTTP(sayHost))
	l.net.serve("127.0.0.1:80", serveHTTP(sayHost))
	l.net.name("turn.example", "5.6.7.8")
	l.policy(only("turn.example"))
	if got, err := l.exchange("turn.example", 80, get("turn.example", "/first")); !strings.Contains(got, "/first") {
		t.Fatalf("got %q, %v", got, err)
	}
	addr := l.lookup("turn.example")
	l.net.name("turn.example", "127.0.0.1")
	clock.advance(2 * nameAge)
	if c, err := l.dial(addr + ":80"); err == nil {
		if err := expect(c, get("turn.example", "/loot"), "/loot"); err == nil {
			t.Fatal("a name that was rebound to the host was reached")
		}
	}
	if dialled, _ := l.net.seen(); len(dialled) != 1 {
		t.Errorf("the gateway dialled %v", dialled)
	}
}

func TestEncryptedClientHelloIsRefused(t *testing.T) {
	l := newBattlefield(t)
	l.policy(onlyGood)
	plain := clientHello(t, "good.example")
	for _, kind := range []uint16{extECH, extESNI} {
		c, err := l.dialName("good.example", 443)
		if err != nil {
			t.Fatal(err)
		}
		if err := expect(c, string(withExtension(plain, kind, make([]byte, 32))), string(tlsAlert)); err != nil {
			t.Errorf("extension %#x: %v", kind, err)
		}
	}
	c, err := l.dialName("good.example", 443)
	if err != nil {
		t.Fatal(err)
	}
	if err := expect(c, string(withExtension(plain, 0xfafa, nil)), "\x16\x03"); err != nil {
		t.Errorf("the same hello with an unknown extension: %v", err)
	}
}

// withExtension adds an extension to a ClientHello.
func withExtension(hello []byte, kind uint16, body []byte) []byte {
	h := append([]byte(nil), hello...)
	at := recordHeader + 4 + 2 + 32
	at += 1 + int(h[at])
	at += 2 + int(binary.BigEndian.Uint16(h[at:]))
	at += 1 + int(h[at])
	ext := binary.BigEndian.AppendUint16(nil, kind)
	ext = binary.BigEndian.AppendUint16(ext, uint16(len(body)))
	ext = append(ext, body...)
	binary.BigEndian.PutUint16(h[at:], binary.BigEndian.Uint16(h[at:])+uint16(len(ext)))
	h = append(h, ext...)
	n := len(h) - recordHeader
	binary.BigEndian.PutUint16(h[3:], uint16(n))
	h[6], h[7], h[8] = byte((n-4)>>16), byte((n-4)>>8), byte(n-4)
	return h
}

// newRawLab is a lab in which the test itself is the guest's end of the network device, and sends
// and reads frames.
func newRawLab(t *testing.T, n bothy.Network) (*memNetDevice, *Gateway) {
	host, inside := newNetDevice(65000)
	outside := newInternet(t)
	g, err := New(host, Options{Dialer: outside, Resolver: outside, HostAddrs: ownHostAddrs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close(); inside.Close() })
	if err := g.SetPolicy(n); err != nil {
		t.Fatal(err)
	}
	return inside, g
}

// answers sends frames, each followed by an echo request, and returns the kinds of the frames that
// come back before its reply.
func answers(t *testing.T, c *memNetDevice, frames ...[]byte) (got []string) {
	t.Helper()
	for _, f := range append(frames, echoRequest("10.0.0.2", "10.0.0.1", guestMAC)) {
		if err := c.WriteFrame(f); err != nil {
			t.Fatal(err)
		}
	}
	for b := make([]byte, 65536); ; {
		n, err := c.ReadFrame(b)
		if err != nil {
			t.Fatal(err)
		}
		switch f := b[:n]; {
		case binary.BigEndian.Uint16(f[12:]) == uint16(header.ARPProtocolNumber):
			if header.ARP(f[ethernetSize:]).Op() == header.ARPReply {
				got = append(got, "arp")
			}
		case header.IPv4(f[ethernetSize:]).Protocol() == uint8(header.ICMPv4ProtocolNumber):
			h := header.IPv4(f[ethernetSize:])
			if header.ICMPv4(h.Payload()).Type() == header.ICMPv4EchoReply && h.SourceAddress() == gatewayAddress && h.DestinationAddress() == guestAddress {
				return got
			}
			got = append(got, "icmp from "+h.SourceAddress().String())
		default:
			h := header.IPv4(f[ethernetSize:])
			got = append(got, fmt.Sprintf("protocol %d to %s", h.Protocol(), h.DestinationAddress()))
		}
	}
}

func frame(src mac, dst mac, kind uint16, body []byte) []byte {
	f := append(append(append([]byte(nil), dst[:]...), src[:]...), byte(kind>>8), byte(kind))
	return append(f, body...)
}

func ipPacket(src, dst string, protocol tcpip.TransportProtocolNumber, body []byte) []byte {
	p := make([]byte, header.IPv4MinimumSize, header.IPv4MinimumSize+len(body))
	h := header.IPv4(p)
	h.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(p) + len(body)), TTL: 64, Protocol: uint8(protocol),
		SrcAddr: tcpip.AddrFrom4(netip.MustParseAddr(src).As4()), DstAddr: tcpip.AddrFrom4(netip.MustParseAddr(dst).As4()),
	})
	h.SetChecksum(^h.CalculateChecksum())
	return append(p, body...)
}

func echoRequest(src, dst string, from mac) []byte {
	b := make([]byte, header.ICMPv4MinimumSize+8)
	h := header.ICMPv4(b)
	h.SetType(header.ICMPv4Echo)
	h.SetChecksum(^checksum.Checksum(b, 0))
	return frame(from, gatewayMAC, uint16(header.IPv4ProtocolNumber), ipPacket(src, dst, header.ICMPv4ProtocolNumber, b))
}

func syn(src, dst string, port uint16, from mac) []byte {
	b := make([]byte, header.TCPMinimumSize)
	h := header.TCP(b)
	h.Encode(&header.TCPFields{SrcPort: 1234, DstPort: port, SeqNum: 1, DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagSyn, WindowSize: 1000})
	s, d := tcpip.AddrFrom4(netip.MustParseAddr(src).As4()), tcpip.AddrFrom4(netip.MustParseAddr(dst).As4())
	h.SetChecksum(^h.CalculateChecksum(header.PseudoHeaderChecksum(header.TCPProtocolNumber, s, d, uint16(len(b)))))
	return frame(from, gatewayMAC, uint16(header.IPv4ProtocolNumber), ipPacket(src, dst, header.TCPProtocolNumber, b))
}

func datagram(src, dst string, port uint16, from mac) []byte {
	b := make([]byte, header.UDPMinimumSize+4)
	header.UDP(b).Encode(&header.UDPFields{SrcPort: 1234, DstPort: port, Length: uint16(len(b))})
	return frame(from, gatewayMAC, uint16(header.IPv4ProtocolNumber), ipPacket(src, dst, header.UDPProtocolNumber, b))
}

func arpPacket(op header.ARPOp, sender mac, senderIP, targetIP string) []byte {
	b := make([]byte, header.ARPSize)
	h := header.ARP(b)
	h.SetIPv4OverEthernet()
	h.SetOp(op)
	copy(h.HardwareAddressSender(), sender[:])
	copy(h.ProtocolAddressSender(), netip.MustParseAddr(senderIP).AsSlice())
	copy(h.ProtocolAddressTarget(), netip.MustParseAddr(targetIP).AsSlice())
	return b
}

func TestGatewayAnswersEchoAndARPForItselfOnly(t *testing.T) {
	everyone := mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	arp := uint16(header.ARPProtocolNumber)
	for _, n := range []bothy.Network{off, restricted, open} {
		c, _ := newRawLab(t, n)
		if got := answers(t, c, frame(guestMAC, everyone, arp, arpPacket(header.ARPRequest, guestMAC, "10.0.0.2", "10.0.0.1"))); len(got) != 1 || got[0] != "arp" {
			t.Fatalf("%s: ARP for the gateway got %v", n.Mode, got)
		}
		for what, f := range map[string][]byte{
			"ARP for a neighbour":            frame(guestMAC, everyone, arp, arpPacket(header.ARPRequest, guestMAC, "10.0.0.2", "10.0.0.3")),
			"ARP as a neighbour":             frame(guestMAC, everyone, arp, arpPacket(header.ARPRequest, guestMAC, "10.0.0.3", "10.0.0.1")),
			"ARP that claims the gateway":    frame(guestMAC, everyone, arp, arpPacket(header.ARPReply, guestMAC, "10.0.0.1", "10.0.0.2")),
			"ARP with two senders":           frame(guestMAC, everyone, arp, arpPacket(header.ARPRequest, mac{2, 9, 9, 9, 9, 9}, "10.0.0.2", "10.0.0.1")),
			"ARP from another card":          frame(mac{2, 9, 9, 9, 9, 9}, everyone, arp, arpPacket(header.ARPRequest, mac{2, 9, 9, 9, 9, 9}, "10.0.0.2", "10.0.0.1")),
			"ARP from the gateway's card":    frame(gatewayMAC, everyone, arp, arpPacket(header.ARPRequest, gatewayMAC, "10.0.0.2", "10.0.0.1")),
			"echo to the outside":            echoRequest("10.0.0.2", "8.8.8.8", guestMAC),
			"echo to a neighbour":            echoRequest("10.0.0.2", "10.0.0.3", guestMAC),
			"echo as a neighbour":            echoRequest("10.0.0.3", "10.0.0.1", guestMAC),
			"echo as a public address":       echoRequest("8.8.8.8", "10.0.0.1", guestMAC),
			"echo from another card":         echoRequest("10.0.0.2", "10.0.0.1", mac{2, 9, 9, 9, 9, 9}),
			"a connection as a neighbour":    syn("10.0.0.3", "10.0.0.1", 53, guestMAC),
			"a connection as the gateway":    syn("10.0.0.1", "10.0.0.2", 49983, guestMAC),
			"IPv6":                           frame(guestMAC, gatewayMAC, 0x86dd, make([]byte, 60)),
			"IPv6 neighbour discovery":       frame(guestMAC, mac{0x33, 0x33, 0, 0, 0, 1}, 0x86dd, make([]byte, 60)),
			"a VLAN":                         frame(guestMAC, gatewayMAC, 0x8100, make([]byte, 60)),
			"another protocol over IPv4":     frame(guestMAC, gatewayMAC, 0x0800, ipPacket("10.0.0.2", "8.8.8.8", 47, make([]byte, 20))),
			"IPv6 inside IPv4":               frame(guestMAC, gatewayMAC, 0x0800, ipPacket("10.0.0.2", "8.8.8.8", 41, make([]byte, 40))),
			"a source route":                 frame(guestMAC, gatewayMAC, 0x0800, append([]byte{0x46}, ipPacket("10.0.0.2", "8.8.8.8", 6, make([]byte, 24))[1:]...)),
			"a frame that is cut off":        echoRequest("10.0.0.2", "10.0.0.1", guestMAC)[:30],
			"a packet longer than its frame": echoRequest("10.0.0.2", "10.0.0.1", guestMAC)[:40],
			"an empty frame":                 {},
		} {
			if got := answers(t, c, f); len(got) > 0 {
				t.Errorf("%s: %s was answered: %v", n.Mode, what, got)
			}
		}
	}
}

func TestRefusedSYNGetsOneReset(t *testing.T) {
	c, _ := newRawLab(t, off)
	if got := answers(t, c, syn("10.0.0.2", "8.8.8.8", 443, guestMAC)); len(got) != 1 || got[0] != "protocol 6 to 10.0.0.2" {
		t.Errorf("got %v", got)
	}
}

func TestRefusedDatagramIsAnsweredAtOnce(t *testing.T) {
	c, _ := newRawLab(t, off)
	if got := answers(t, c, datagram("10.0.0.2", "8.8.8.8", 443, guestMAC)); len(got) != 1 || got[0] != "icmp from 8.8.8.8" {
		t.Errorf("got %v", got)
	}
}

func TestICMPTunnelIsLogged(t *testing.T) {
	c, g := newRawLab(t, open)
	answers(t, c, echoRequest("10.0.0.2", "8.8.8.8", guestMAC))
	lines := g.Log(time.Time{})
	if len(lines) != 1 || lines[0].Protocol != "icmp" || lines[0].Allowed || lines[0].Address != "8.8.8.8" {
		t.Errorf("got %+v", lines)
	}
}
