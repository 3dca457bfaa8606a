package gateway

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/bothy-dev/bothy"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	ethernetSize = header.EthernetMinimumSize
	// largeFrame is the size from which a received frame keeps the buffer that
	// it was read into; smaller ones are copied out of it.
	largeFrame = 32 << 10
)

type mac [6]byte

var gatewayMAC = mac(bothy.GatewayMAC)

// An UncheckedNetDevice is a NetDevice whose other end may ignore the checksums of TCP and UDP.
// If so, the gateway does not compute them.
type UncheckedNetDevice interface {
	bothy.NetDevice
	Unchecked() bool
}

// link is a stack.LinkEndpoint over a NetDevice. It accepts only what a
// well-behaved guest would send: ARP and IPv4 from the guest's own addresses.
// Everything else is dropped here, before any protocol code sees it.
type link struct {
	dev bothy.NetDevice
	// offload is set if the other end ignores checksums.
	offload bool
	mtu     uint32
	refused func(protocol string, dst tcpip.Address, port uint16, reason string)

	// beforeSYN is called with a segment that opens a connection, before the stack sees it.
	beforeSYN func(stack.TransportEndpointID)

	// guest is the only link address that frames may come from.
	guest      mac
	dispatcher atomic.Pointer[stack.NetworkDispatcher]
	done       chan struct{}
}

var _ stack.LinkEndpoint = (*link)(nil)

func newLink(dev bothy.NetDevice, guest mac, refused func(string, tcpip.Address, uint16, string)) *link {
	l := &link{dev: dev, mtu: uint32(dev.MTU()), guest: guest, refused: refused, done: make(chan struct{})}
	if u, ok := dev.(UncheckedNetDevice); ok {
		l.offload = u.Unchecked()
	}
	return l
}

// run reads frames until the network device ends, and returns why it ended.
func (l *link) run() error {
	defer close(l.done)
	size := int(l.mtu) + ethernetSize
	v := buffer.NewViewSize(size)
	defer func() { v.Release() }()
	for {
		n, err := l.dev.ReadFrame(v.AsSlice())
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		frame := v.AsSlice()[:n]
		if !l.admit(frame) {
			continue
		}
		if id, ok := synOf(frame[ethernetSize:]); ok && l.beforeSYN != nil {
			l.beforeSYN(id)
		}
		if n < largeFrame {
			l.deliver(buffer.NewViewWithData(frame[ethernetSize:]))
			continue
		}
		v.CapLength(n)
		v.TrimFront(ethernetSize)
		l.deliver(v)
		v = buffer.NewViewSize(size)
	}
}

// deliver hands one IPv4 packet to the stack. It takes ownership of v.
func (l *link) deliver(v *buffer.View) {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(v)})
	defer pkt.DecRef()
	pkt.PktType = tcpip.PacketHost
	if d := l.dispatcher.Load(); d != nil {
		(*d).DeliverNetworkPacket(header.IPv4ProtocolNumber, pkt)
	}
}

// admit reports whether frame is an IPv4 packet that an honest guest could have sent. It answers
// ARP itself.
func (l *link) admit(frame []byte) bool {
	if len(frame) < ethernetSize+header.IPv4MinimumSize {
		return false
	}
	if mac(frame[6:12]) != l.guest {
		return false
	}
	switch binary.BigEndian.Uint16(frame[12:14]) {
	case uint16(header.ARPProtocolNumber):
		l.handleARP(frame[ethernetSize:])
		return false
	case uint16(header.IPv4ProtocolNumber):
		return mac(frame[:6]) == gatewayMAC && l.admitIPv4(frame[ethernetSize:])
	}
	return false
}

func (l *link) admitIPv4(p []byte) bool {
	h := header.IPv4(p)
	// IP options are useless on a point-to-point link, and source routes can be
	// forged.
	if p[0] != 0x45 || int(h.TotalLength()) > len(p) || int(h.TotalLength()) < header.IPv4MinimumSize {
		return false
	}
	dst := h.DestinationAddress()
	if h.SourceAddress() != guestAddress {
		l.refused(protocolName(h.Protocol()), dst, 0, "the source address is not the sandbox's own")
		return false
	}
	switch tcpip.TransportProtocolNumber(h.Protocol()) {
	case header.TCPProtocolNumber, header.UDPProtocolNumber:
		return true
	case header.ICMPv4ProtocolNumber:
		return l.admitICMP(h)
	}
	return false
}

// admitICMP accepts echo requests to the gateway, unfragmented ones only.
func (l *link) admitICMP(h header.IPv4) bool {
	body := h[header.IPv4MinimumSize:h.TotalLength()]
	whole := h.FragmentOffset() == 0 && h.Flags()&header.IPv4FlagMoreFragments == 0
	if h.DestinationAddress() == gatewayAddress && whole && len(body) >= header.ICMPv4MinimumSize &&
		header.ICMPv4(body).Type() == header.ICMPv4Echo {
		return true
	}
	l.refused("icmp", h.DestinationAddress(), 0, "only an echo to the gateway is answered")
	return false
}

// synOf returns the connection that an admitted packet opens, if any.
func synOf(p []byte) (id stack.TransportEndpointID, ok bool) {
	h := header.IPv4(p)
	if h.Protocol() != uint8(header.TCPProtocolNumber) || h.FragmentOffset() != 0 || len(p) < header.IPv4MinimumSize+header.TCPMinimumSize {
		return id, false
	}
	t := header.TCP(p[header.IPv4MinimumSize:])
	if t.Flags()&(header.TCPFlagSyn|header.TCPFlagAck|header.TCPFlagRst) != header.TCPFlagSyn {
		return id, false
	}
	return stack.TransportEndpointID{
		LocalAddress: h.DestinationAddress(), LocalPort: t.DestinationPort(),
		RemoteAddress: h.SourceAddress(), RemotePort: t.SourcePort(),
	}, true
}

func protocolName(p uint8) string {
	switch tcpip.TransportProtocolNumber(p) {
	case header.TCPProtocolNumber:
		return "tcp"
	case header.UDPProtocolNumber:
		return "udp"
	}
	return "icmp"
}

// handleARP answers requests for the gateway's address. Nothing else in an ARP packet has any
// effect: both link addresses are known in advance.
func (l *link) handleARP(p []byte) {
	h := header.ARP(p)
	if h.IsValid() && h.Op() == header.ARPRequest && mac(h.HardwareAddressSender()) == l.guest &&
		[4]byte(h.ProtocolAddressSender()) == guestAddress.As4() && [4]byte(h.ProtocolAddressTarget()) == gatewayAddress.As4() {
		_ = l.dev.WriteFrame(l.arpReply())
	}
}

func (l *link) arpReply() []byte {
	f := make([]byte, ethernetSize+header.ARPSize)
	putEthernet(f, l.guest, header.ARPProtocolNumber)
	h := header.ARP(f[ethernetSize:])
	h.SetIPv4OverEthernet()
	h.SetOp(header.ARPReply)
	copy(h.HardwareAddressSender(), gatewayMAC[:])
	copy(h.ProtocolAddressSender(), gatewayAddress.AsSlice())
	copy(h.HardwareAddressTarget(), l.guest[:])
	copy(h.ProtocolAddressTarget(), guestAddress.AsSlice())
	return f
}

func putEthernet(f []byte, to mac, kind tcpip.NetworkProtocolNumber) {
	copy(f, to[:])
	copy(f[6:], gatewayMAC[:])
	binary.BigEndian.PutUint16(f[12:], uint16(kind))
}

// WritePackets implements stack.LinkWriter.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	for i, pkt := range pkts.AsSlice() {
		if err := l.write(pkt); err != nil {
			return i, err
		}
	}
	return pkts.Len(), nil
}

// pieces is scratch space for one vectored write.
type pieces struct {
	eth  [ethernetSize]byte
	list [][]byte
}

var piecesPool = sync.Pool{New: func() any { return &pieces{list: make([][]byte, 0, 16)} }}

func (l *link) write(pkt *stack.PacketBuffer) tcpip.Error {
	p := piecesPool.Get().(*pieces)
	putEthernet(p.eth[:], l.guest, header.IPv4ProtocolNumber)
	p.list = append(p.list[:0], p.eth[:])
	views, skip := pkt.AsViewList()
	for v := views.Front(); v != nil; v = v.Next() {
		b := v.AsSlice()
		if skip >= len(b) {
			skip -= len(b)
			continue
		}
		p.list = append(p.list, b[skip:])
		skip = 0
	}
	err := l.dev.WriteFrame(p.list...)
	clear(p.list)
	piecesPool.Put(p)
	if err != nil {
		return &tcpip.ErrNoBufferSpace{}
	}
	return nil
}

// Attach implements stack.LinkEndpoint.
func (l *link) Attach(d stack.NetworkDispatcher) {
	if d == nil {
		l.dispatcher.Store(nil)
		return
	}
	l.dispatcher.Store(&d)
}

// The rest of stack.LinkEndpoint. The link writes its own header, so the stack sees a link
// without one and resolves no addresses.

func (l *link) IsAttached() bool                        { return l.dispatcher.Load() != nil }
func (l *link) MTU() uint32                             { return l.mtu }
func (l *link) SetMTU(uint32)                           {}
func (l *link) MaxHeaderLength() uint16                 { return 0 }
func (l *link) LinkAddress() tcpip.LinkAddress          { return "" }
func (l *link) SetLinkAddress(tcpip.LinkAddress)        {}
func (l *link) Wait()                                   { <-l.done }
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (l *link) AddHeader(*stack.PacketBuffer)           {}
func (l *link) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (l *link) Close()                                  {}
func (l *link) SetOnCloseAction(func())                 {}

// Capabilities says that packets from the network device need no checksum validation: the device
// is memory, not a wire.
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	if l.offload {
		return stack.CapabilityRXChecksumOffload | stack.CapabilityTXChecksumOffload
	}
	return stack.CapabilityRXChecksumOffload
}
