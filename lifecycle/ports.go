package lifecycle

import (
	"context"
	"net"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
)

// DialPort connects to a port of a sandbox: over its network device first, and if
// nothing listens there, on its loopback through the guest.
func (s *Service) DialPort(ctx context.Context, id string, port uint16) (net.Conn, error) {
	l, done, err := s.enterPort(ctx, id, port)
	if err != nil {
		return nil, err
	}
	c, err := s.machines.DialPort(ctx, l, port)
	if err != nil {
		done()
		return nil, err
	}
	return &countedConn{Conn: c, done: done}, nil
}

// FetchPort sends a request to the HTTP server on a port of a sandbox. The connection is reused
// for further requests, so only what keepalive.Keepable allows may be sent. The sandbox is kept
// active until the response's body is closed.
func (s *Service) FetchPort(req *http.Request, id string, port uint16) (*http.Response, error) {
	l, done, err := s.enterPort(req.Context(), id, port)
	if err != nil {
		return nil, err
	}
	res, err := l.KeptConns.RoundTrip(req, port)
	if err != nil {
		done()
		return nil, err
	}
	res.Body = &usedReader{res.Body, done}
	return res, nil
}

// enterPort is enter for a connection to a port.
func (s *Service) enterPort(ctx context.Context, id string, port uint16) (l *instance.Instance, end func(), err error) {
	if port == 0 || port == bothy.GuestPort {
		return nil, nil, invalid("port %d cannot be reached from outside", port).
			WithHint("Give a port from 1 to 65535 other than %d.", bothy.GuestPort)
	}
	return s.enter(ctx, id, bothy.ScopeSandboxesWrite, instance.ByConnection)
}

// DialSSH connects to the sandbox's SSH server, which its guest starts for the connection.
func (s *Service) DialSSH(ctx context.Context, id string, req bothy.SSHRequest) (net.Conn, error) {
	l, done, err := s.enter(ctx, id, bothy.ScopeSandboxesWrite, instance.ByConnection)
	if err != nil {
		return nil, err
	}
	var c net.Conn
	err = s.ask(ctx, l, func(g bothy.Guest) (err error) {
		d, ok := g.(bothy.SSHDialer)
		if !ok {
			return bothy.Errorf(bothy.CodeUnsupported, "the guest of sandbox %s has no SSH server", id).
				WithHint("Restart the sandbox, or create a new one.")
		}
		c, err = d.DialSSH(ctx, req)
		return err
	})
	if err != nil {
		done()
		return nil, err
	}
	return &countedConn{Conn: c, done: done}, nil
}

// countedConn is a connection that keeps its sandbox active.
type countedConn struct {
	net.Conn
	done func()
}

func (c *countedConn) Close() error {
	c.done()
	return c.Conn.Close()
}
