package gateway

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/waiter"
)

// buffers lends the memory that carries payload. A connection holds a buffer
// only while it has something to carry.
type buffers struct {
	size int
	pool sync.Pool
}

func newBuffers(size int) *buffers {
	b := &buffers{size: size}
	b.pool.New = func() any { p := make([]byte, size); return &p }
	return b
}

func (b *buffers) get() *[]byte  { return b.pool.Get().(*[]byte) }
func (b *buffers) put(p *[]byte) { b.pool.Put(p) }

var (
	// wide buffers hold four full packets of the usual network device, so that no small one is
	// left over. They are used while a sandbox has few connections.
	wide = newBuffers(4 * (65000 - header.IPv4MinimumSize - header.TCPMinimumSize - 12))
	// narrow buffers serve the other connections.
	narrow = newBuffers(16 << 10)
	// datagrams buffers hold the largest datagram.
	datagrams = newBuffers(64 << 10)
)

// wideConns is how many connections of a sandbox get wide buffers.
const wideConns = 32

// errGone is returned for the guest's end of a connection that was reset.
var errGone = errors.New("the sandbox's connection was reset")

// guestConn is the guest's end of a TCP connection.
type guestConn struct {
	*gonet.TCPConn
	ep tcpip.Endpoint
	wq *waiter.Queue
	*buffers
}

func newGuestConn(wq *waiter.Queue, ep tcpip.Endpoint, b *buffers) *guestConn {
	return &guestConn{TCPConn: gonet.NewTCPConn(wq, ep), ep: ep, wq: wq, buffers: b}
}

// Quiet reports whether neither bytes nor an end of stream are pending.
func (c *guestConn) Quiet() bool {
	return c.ep.Readiness(waiter.ReadableEvents|waiter.EventHUp|waiter.EventErr) == 0
}

// abort sends the guest a reset and wakes readers and writers.
func (c *guestConn) abort() { c.ep.Abort() }

// sendTo copies what the guest sends to out until the guest has no more.
func (c *guestConn) sendTo(out io.Writer, count func(int)) error {
	err := c.sendN(out, math.MaxInt64, count)
	if err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

// sendN copies the next limit bytes that the guest sends to out. It holds no buffer while it
// waits for them.
func (c *guestConn) sendN(out io.Writer, limit int64, count func(int)) error {
	entry, ready := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventHUp | waiter.EventErr)
	c.wq.EventRegister(&entry)
	defer c.wq.EventUnregister(&entry)
	for limit > 0 {
		n, terr, err := c.sendSome(out, limit)
		limit -= int64(n)
		count(n)
		if err != nil {
			return err
		}
		switch terr.(type) {
		case nil:
		case *tcpip.ErrWouldBlock:
			<-ready
		case *tcpip.ErrClosedForReceive:
			return io.ErrUnexpectedEOF
		default:
			return errGone
		}
	}
	return nil
}

func (c *guestConn) sendSome(out io.Writer, limit int64) (int, tcpip.Error, error) {
	b := c.get()
	defer c.put(b)
	w := tcpip.SliceWriter((*b)[:min(limit, int64(c.size))])
	r, terr := c.ep.Read(&w, tcpip.ReadOptions{})
	if terr != nil {
		return 0, terr, nil
	}
	c.ep.ModerateRecvBuf(r.Count)
	n, err := out.Write((*b)[:r.Count])
	return n, nil, err
}

// receiveFrom copies what in sends to the guest until in ends. If in is a socket, it holds no
// memory while it waits for it, or for the guest. If see is not nil, it gets the bytes first,
// until it returns false.
func (c *guestConn) receiveFrom(in net.Conn, see func([]byte) bool, count func(int)) error {
	entry, ready := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventHUp | waiter.EventErr)
	c.wq.EventRegister(&entry)
	defer c.wq.EventUnregister(&entry)
	r := newPatientReader(in, c.buffers)
	for see != nil || r.raw == nil {
		b, err := r.read()
		if err != nil {
			r.release()
			if err == io.EOF {
				return nil
			}
			return err
		}
		if see != nil && !see(b) {
			see = nil
		}
		err = c.writeAll(b, ready)
		r.release()
		if err != nil {
			return err
		}
		count(len(b))
	}
	return c.spliceFrom(r.raw, ready, count)
}

// spliceFrom is receiveFrom without a buffer in between.
func (c *guestConn) spliceFrom(in syscall.RawConn, ready <-chan struct{}, count func(int)) error {
	s := &spliceReader{ep: c.ep, count: count}
	if err := in.Control(takeUrgentInline); err != nil {
		return err
	}
	for {
		if err := in.Read(s.splice); err != nil {
			return err
		}
		switch {
		case s.full:
			<-ready
		case s.err == io.EOF:
			return nil
		case s.err != nil:
			return s.err
		}
	}
}

func (c *guestConn) writeAll(p []byte, ready <-chan struct{}) error {
	var r bytes.Reader
	for len(p) > 0 {
		r.Reset(p)
		n, terr := c.ep.Write(&r, tcpip.WriteOptions{})
		p = p[n:]
		switch terr.(type) {
		case nil:
		case *tcpip.ErrWouldBlock:
			<-ready
		default:
			return errGone
		}
	}
	return nil
}

// patientReader reads from a connection into a buffer of the pool, and holds
// none while there is nothing to read.
type patientReader struct {
	*buffers
	conn net.Conn
	raw  syscall.RawConn
	try  func(fd uintptr) bool

	buf *[]byte
	n   int
	err error
}

func newPatientReader(c net.Conn, b *buffers) *patientReader {
	r := &patientReader{conn: c, buffers: b}
	if s, ok := c.(syscall.Conn); ok {
		r.raw, _ = s.SyscallConn()
	}
	r.try = r.tryRead
	return r
}

// read returns the next bytes. They are valid until release.
func (r *patientReader) read() ([]byte, error) {
	if r.raw == nil {
		r.buf = r.get()
		n, err := r.conn.Read(*r.buf)
		if n > 0 {
			err = nil
		}
		return (*r.buf)[:n], err
	}
	if err := r.raw.Read(r.try); err != nil {
		return nil, err
	}
	if r.err != nil {
		return nil, r.err
	}
	if r.n == 0 {
		return nil, io.EOF
	}
	return (*r.buf)[:r.n], nil
}

// tryRead is called by the poller, first immediately and then whenever there may be bytes.
func (r *patientReader) tryRead(fd uintptr) bool {
	if r.buf == nil {
		r.buf = r.get()
	}
	for {
		r.n, r.err = syscall.Read(int(fd), *r.buf)
		if r.err != syscall.EINTR {
			break
		}
	}
	if r.err != syscall.EAGAIN {
		return true
	}
	r.release()
	return false
}

func (r *patientReader) release() {
	if r.buf != nil {
		r.put(r.buf)
		r.buf = nil
	}
}

// closeWrite tells the other end that no more data follows.
func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}

// resetConn closes c with a reset if possible.
func resetConn(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.Close()
}

// tally counts payload for one flow and for its gateway.
type tally struct {
	flow  atomic.Int64
	total *atomic.Int64
}

func (t *tally) add(n int) {
	t.flow.Add(int64(n))
	t.total.Add(int64(n))
}
