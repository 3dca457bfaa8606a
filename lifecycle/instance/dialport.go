package instance

import (
	"context"
	"net"

	"github.com/bothy-dev/bothy"
)

// DialPort connects to a port of the sandbox: over its network device and, if nothing listens
// there, on its loopback through the guest.
func (s *Machines) DialPort(ctx context.Context, l *Instance, port uint16) (net.Conn, error) {
	c, cause := l.Gateway.Dial(ctx, port)
	if cause == nil {
		return c, nil
	}
	if d, ok := l.Guest.(bothy.PortDialer); ok {
		c, err := d.DialPort(ctx, port)
		if err == nil {
			return c, nil
		}
		cause = err
	}
	// With CodeConflict the guest has responded, so the machine is running.
	if bothy.ErrorCode(cause) != bothy.CodeConflict {
		if e := s.owner.EndedError(ctx, l); e != nil {
			return nil, e
		}
	}
	return nil, bothy.Errorf(bothy.CodeConflict, "nothing listens on port %d of sandbox %s", port, l.ID).
		WithHint("Start the server inside first, and try again.").Because(cause)
}
