// Package diag provides a NETLINK_SOCK_DIAG socket protocol: it lists the sockets of TCP, UDP and
// Unix, as ss(8) asks for them.
package diag

import (
	gocontext "context"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/marshal/primitive"
	"gvisor.dev/gvisor/pkg/sentry/inet"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/socket"
	"gvisor.dev/gvisor/pkg/sentry/socket/netlink"
	"gvisor.dev/gvisor/pkg/sentry/socket/netlink/nlmsg"
	"gvisor.dev/gvisor/pkg/sentry/socket/unix"
	"gvisor.dev/gvisor/pkg/sentry/socket/unix/transport"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/syserr"
)

// From include/uapi/linux/sock_diag.h, inet_diag.h and unix_diag.h.
const (
	sockDiagByFamily = 20

	inetRequestSize = 56 // struct inet_diag_req_v2
	inetSize        = 72 // struct inet_diag_msg

	inetRequestProtocol = 3 // INET_DIAG_REQ_PROTOCOL

	unixRequestSize = 24 // struct unix_diag_req
	unixSize        = 16 // struct unix_diag_msg

	unixDiagName = 0
	showName     = 1 << unixDiagName

	dumpInterrupted = 0x10 // NLM_F_DUMP_INTR
)

// A dump is made at once, and waits in the socket's buffer of 208 KiB, which must have room for its
// end too. Linux's datagrams are of this size, which readers expect.
const (
	maxDump     = 128 << 10
	maxDatagram = 16 << 10
)

// Protocol implements netlink.Protocol.
type Protocol struct{}

var _ netlink.Protocol = (*Protocol)(nil)

// NewProtocol creates a NETLINK_SOCK_DIAG netlink.Protocol.
func NewProtocol(*kernel.Task) (netlink.Protocol, *syserr.Error) { return &Protocol{}, nil }

// Protocol implements netlink.Protocol.Protocol.
func (*Protocol) Protocol() int { return linux.NETLINK_SOCK_DIAG }

// CanSend implements netlink.Protocol.CanSend.
func (*Protocol) CanSend() bool { return true }

// Receive implements netlink.Protocol.Receive.
func (*Protocol) Receive(ctx context.Context, s *netlink.Socket, buf []byte) *syserr.Error {
	return s.ProcessMessages(ctx, buf)
}

// ProcessMessage implements netlink.Protocol.ProcessMessage. What it does not know is answered as
// by a kernel without the module for it, after which ss(8) reads /proc/net.
func (*Protocol) ProcessMessage(ctx context.Context, s *netlink.Socket, msg *nlmsg.Message, ms *nlmsg.MessageSet) *syserr.Error {
	hdr := msg.Header()
	req := nlmsg.BytesView(msg.Buffer())
	if _, ok := req.Extract(linux.NetlinkMessageHeaderSize); !ok || len(req) < 8 {
		return syserr.ErrInvalidArgument
	}
	t := kernel.TaskFromContext(ctx)
	if t == nil || hdr.Type != sockDiagByFamily || hdr.Flags&linux.NLM_F_DUMP != linux.NLM_F_DUMP {
		return syserr.ErrNotSupported
	}
	d := &dump{t: t, s: s, hdr: hdr, family: int(req[0]), states: hostarch.ByteOrder.Uint32(req[4:])}
	switch {
	case (d.family == linux.AF_INET || d.family == linux.AF_INET6) && req[1] == linux.IPPROTO_TCP:
		d.stype = linux.SOCK_STREAM
	case (d.family == linux.AF_INET || d.family == linux.AF_INET6) && req[1] == linux.IPPROTO_UDP:
		d.stype = linux.SOCK_DGRAM
	case d.family == linux.AF_UNIX:
	default:
		return syserr.ErrNoFileOrDir
	}
	if d.family != linux.AF_UNIX {
		if len(req) < inetRequestSize {
			return syserr.ErrInvalidArgument
		}
		// A protocol such as MPTCP does not fit in the byte.
		if attrs, ok := nlmsg.AttrsView(req[inetRequestSize:]).Parse(); !ok {
			return syserr.ErrInvalidArgument
		} else if _, ok := attrs[inetRequestProtocol]; ok {
			return syserr.ErrNoFileOrDir
		}
	} else if len(req) < unixRequestSize {
		return syserr.ErrInvalidArgument
	} else {
		d.show = hostarch.ByteOrder.Uint32(req[12:])
	}
	ms.Multi = true
	return d.all()
}

// dump is the answer to one request.
type dump struct {
	t      *kernel.Task
	s      *netlink.Socket
	hdr    linux.NetlinkMessageHeader
	family int
	stype  linux.SockType // or 0 for all
	states uint32
	show   uint32

	ms    *nlmsg.MessageSet
	size  int // of ms
	total int
}

func (d *dump) all() *syserr.Error {
	for _, se := range d.t.Kernel().ListSockets() {
		f := se.Sock
		if !f.TryIncRef() {
			continue // it is being closed
		}
		err := d.one(f)
		f.DecRef(d.t)
		if err != nil {
			return err
		}
		if d.total >= maxDump {
			break
		}
	}
	return d.flush()
}

func (d *dump) one(f *vfs.FileDescription) *syserr.Error {
	s, ok := f.Impl().(socket.Socket)
	if !ok {
		return nil
	}
	if family, stype, _ := s.Type(); family != d.family || d.stype != 0 && stype != d.stype {
		return nil
	}
	if in, ok := s.(interface{ NetworkNamespace() *inet.Namespace }); ok && in.NetworkNamespace() != d.s.NetworkNamespace() {
		return nil
	}
	stat, err := f.Stat(d.t, vfs.StatOptions{Mask: linux.STATX_UID | linux.STATX_INO})
	if err != nil {
		return nil
	}
	var b []byte
	var name string
	if d.family == linux.AF_UNIX {
		b, name = d.unix(s, uint32(stat.Ino))
	} else {
		b = d.inet(s, stat)
	}
	if b == nil {
		return nil
	}
	if d.ms == nil {
		d.ms = nlmsg.NewMessageSet(d.s.GetPortID(), d.hdr.Seq)
		d.ms.Multi = true
	}
	was := d.total
	d.size += linux.NetlinkMessageHeaderSize + len(b) + len(name) + 8
	d.total += linux.NetlinkMessageHeaderSize + len(b) + len(name) + 8
	h := linux.NetlinkMessageHeader{Type: sockDiagByFamily}
	if was < maxDump && d.total >= maxDump {
		h.Flags = dumpInterrupted // there may be more, which are left out
	}
	m := d.ms.AddMessage(h)
	m.Put(primitive.AsByteSlice(b))
	if name != "" {
		m.PutAttr(unixDiagName, primitive.AsByteSlice([]byte(name)))
	}
	if d.size >= maxDatagram {
		return d.flush()
	}
	return nil
}

// flush sends what has been gathered.
func (d *dump) flush() *syserr.Error {
	ms := d.ms
	d.ms, d.size = nil, 0
	if ms == nil {
		return nil
	}
	ms.Multi = false // the end is another message
	return d.s.SendResponse(d.t, ms)
}

// inet returns a struct inet_diag_msg, or nil if the state was not asked for.
func (d *dump) inet(s socket.Socket, stat linux.Statx) []byte {
	st := s.State()
	if st == 0 {
		st = linux.TCP_CLOSE
	}
	if d.states&(1<<st) == 0 {
		return nil
	}
	b := make([]byte, inetSize)
	b[0], b[1] = byte(d.family), byte(st)
	if a, _, err := s.GetSockName(d.t); err == nil {
		put(b[4:], b[8:], a)
	}
	if a, _, err := s.GetPeerName(d.t); err == nil {
		put(b[6:], b[24:], a)
	}
	for i := 44; i < 52; i++ {
		b[i] = 0xff // INET_DIAG_NOCOOKIE
	}
	uid := auth.KUID(stat.UID).In(d.t.Credentials().UserNamespace).OrOverflow()
	hostarch.ByteOrder.PutUint32(b[64:], uint32(uid))
	hostarch.ByteOrder.PutUint32(b[68:], uint32(stat.Ino))
	return b
}

// put writes a port and an address, both in network byte order.
func put(port, addr []byte, a linux.SockAddr) {
	switch a := a.(type) {
	case *linux.SockAddrInet:
		hostarch.ByteOrder.PutUint16(port, a.Port) // which is in network byte order
		copy(addr, a.Addr[:])
	case *linux.SockAddrInet6:
		hostarch.ByteOrder.PutUint16(port, a.Port)
		copy(addr, a.Addr[:])
	}
}

// unix returns a struct unix_diag_msg and the name, or nil if the state was not asked for.
func (d *dump) unix(s socket.Socket, ino uint32) ([]byte, string) {
	u, ok := s.(*unix.Socket)
	if !ok {
		return nil, ""
	}
	st := linux.TCP_CLOSE
	if state := s.State(); state == linux.SS_CONNECTED || state == linux.SS_CONNECTING {
		st = linux.TCP_ESTABLISHED
	}
	if ce, ok := u.Endpoint().(transport.ConnectingEndpoint); ok {
		ce.Lock()
		if ce.ListeningLocked() {
			st = linux.TCP_LISTEN
		}
		ce.Unlock()
	}
	if d.states&(1<<st) == 0 {
		return nil, ""
	}
	b := make([]byte, unixSize)
	b[0], b[1], b[2] = linux.AF_UNIX, byte(u.Endpoint().Type()), byte(st)
	hostarch.ByteOrder.PutUint32(b[4:], ino)
	for i := 8; i < unixSize; i++ {
		b[i] = 0xff
	}
	if a, err := u.Endpoint().GetLocalAddress(); err == nil && d.show&showName != 0 {
		return b, a.Addr
	}
	return b, ""
}

func (*Protocol) StateTypeName() string                     { return "pkg/sentry/socket/netlink/diag.Protocol" }
func (*Protocol) StateFields() []string                     { return nil }
func (*Protocol) StateSave(state.Sink)                      {}
func (*Protocol) StateLoad(gocontext.Context, state.Source) {}

func init() {
	state.Register((*Protocol)(nil))
	netlink.RegisterProvider(linux.NETLINK_SOCK_DIAG, NewProtocol)
}
