package lifecycle

import (
	"context"
	"net"

	"github.com/bothy-dev/bothy"
)

// dialPort connects to a port inside.
func (s *machines) dialPort(ctx context.Context, l *live, port uint16) (net.Conn, error) {
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
	// A guest that answers is there.
	if bothy.ErrorCode(cause) != bothy.CodeConflict {
		if e := s.owner.WhyGone(ctx, l); e != nil {
			return nil, e
		}
	}
	return nil, bothy.Errorf(bothy.CodeConflict, "nothing listens on port %d of sandbox %s", port, l.id).
		WithHint("Start the server inside first, and try again.").Because(cause)
}
