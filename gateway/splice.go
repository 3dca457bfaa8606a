package gateway

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
)

// spliceReader reads from a host's TCP socket directly into an endpoint's send buffer. It
// buffers nothing itself: when the endpoint is full, data stays in the socket.
type spliceReader struct {
	ep    tcpip.Endpoint
	count func(int)

	fd uintptr
	// waiting is how many bytes the kernel holds, as far as known.
	waiting int
	// err is why no more data follows, io.EOF at the end.
	err error
	// full is set if the endpoint has no room.
	full bool
}

// splicesAtOnce bounds the reads of one turn, during which the socket cannot be closed.
const splicesAtOnce = 16

// splice is called by the poller. It returns false to wait for the socket.
func (s *spliceReader) splice(fd uintptr) bool {
	s.fd, s.full = fd, false
	for range splicesAtOnce {
		if s.waiting, s.err = unix.IoctlGetInt(int(fd), unix.SIOCINQ); s.err != nil {
			return true
		}
		if s.waiting == 0 {
			if s.err = s.peek(); s.err == syscall.EAGAIN {
				return false
			} else if s.err != nil {
				return true
			}
			s.waiting = 1
		}
		n, terr := s.ep.Write(s, tcpip.WriteOptions{})
		s.count(int(n))
		switch terr.(type) {
		case nil:
		case *tcpip.ErrWouldBlock:
			s.full = true
			return true
		case *tcpip.ErrBadBuffer:
			s.err = errLost
			return true
		default:
			s.err = errGone
			return true
		}
	}
	return true
}

// takeUrgentInline delivers urgent bytes in order with the others. Otherwise they would be lost,
// and SIOCINQ would not count the bytes after them.
func takeUrgentInline(fd uintptr) {
	_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_OOBINLINE, 1)
}

// errLost is returned for a socket that does not return the data it held.
var errLost = errors.New("the connection was lost")

// peek distinguishes an empty socket from one that has ended or is broken.
func (s *spliceReader) peek() error {
	for {
		n, _, err := syscall.Recvfrom(int(s.fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EINTR:
		case err == nil && n == 0:
			return io.EOF
		default:
			return err
		}
	}
}

// Len implements tcpip.Payloader.
func (s *spliceReader) Len() int { return s.waiting }

// Read implements tcpip.Payloader.
func (s *spliceReader) Read(p []byte) (int, error) {
	if s.waiting == 0 {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, err := syscall.Read(int(s.fd), p[:min(len(p), s.waiting)])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return 0, errLost
		}
		s.waiting -= n
		return n, nil
	}
}
