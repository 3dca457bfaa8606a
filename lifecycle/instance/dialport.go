package instance

import (
	"context"
	"net"

	"github.com/bothy-dev/bothy"
)

// DialPort connects to a port inside.
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
	// A guest that answers is there.
	if bothy.ErrorCode(cause) != bothy.CodeConflict {
		if e := s.owner.WhyGone(ctx, l); e != nil {
			return nil, e
		}
	}
	return nil, bothy.Errorf(bothy.CodeConflict, "nothing listens on port %d of sandbox %s", port, l.ID).
		WithHint("Start the server inside first, and try again.").Because(cause)
}
