package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/bothy-dev/bothy"
)

// endPatience is how long ending a sandbox waits for another operation before it destroys the
// machine under it.
const endPatience = 5 * time.Second

// lockToEnd locks a sandbox that is about to end. An operation that holds the lock for too long
// loses its machine, and so fails: an end must not wait for a kernel that hangs.
func (s *Service) lockToEnd(ctx context.Context, id string, x bothy.Exit) (unlock func(), err error) {
	for {
		unlock, err = s.ledger.LockWithin(ctx, id, endPatience)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return unlock, err
		}
		if l := s.instance(id); l != nil {
			s.log.Warn("another operation delays the end of a sandbox; killing its machine", "sandbox", id)
			l.EndFor(x)
			s.machines.Destroy(l.Machine)
		}
	}
}
