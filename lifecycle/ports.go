package lifecycle

import (
	"context"
	"net"

	"github.com/bothy-dev/bothy"
)

// DialPort connects to a port of a sandbox: over its cable first, and if
// nothing listens there, on its loopback through the guest.
func (s *Service) DialPort(ctx context.Context, id string, port uint16) (net.Conn, error) {
	if port == 0 || port == bothy.GuestPort {
		return nil, invalid("port %d cannot be reached from outside", port).WithHint("Give a port from 1 to 65535 other than %d.", bothy.GuestPort)
	}
	l, done, err := s.enter(ctx, id, bothy.ScopeSandboxesWrite, heldByConnection)
	if err != nil {
		return nil, err
	}
	c, err := s.dialPort(ctx, l, port)
	if err != nil {
		done()
		if e := s.whyGone(ctx, l); e != nil {
			return nil, e
		}
		return nil, err
	}
	return &countedConn{Conn: c, done: done}, nil
}

func (s *Service) dialPort(ctx context.Context, l *live, port uint16) (net.Conn, error) {
	c, cause := l.gateway.Dial(ctx, port)
	if cause == nil {
		return c, nil
	}
	if d, ok := l.guest.(bothy.PortDialer); ok {
		c, err := d.DialPort(ctx, port)
		if err == nil {
			return c, nil
		}
		cause = err
	}
	return nil, bothy.Errorf(bothy.CodeConflict, "nothing listens on port %d of sandbox %s", port, l.id).
		WithHint("Start the server inside first, and try again.").Because(cause)
}

// countedConn is a connection that holds its sandbox awake.
type countedConn struct {
	net.Conn
	done func()
}

func (c *countedConn) Close() error {
	c.done()
	return c.Conn.Close()
}
