package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/bothy-dev/bothy"
)

// endPatience is how long the end of a sandbox waits for a call that changes it,
// before it takes the machine away from that call.
const endPatience = 5 * time.Second

// lockToEnd locks a sandbox that is to end for a reason. A call that holds it for
// too long loses its machine, and so fails: an end must not wait for a kernel that
// hangs.
func (s *Service) lockToEnd(ctx context.Context, id string, x bothy.Exit) (unlock func(), err error) {
	for {
		unlock, err = s.ledger.LockWithin(ctx, id, endPatience)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return unlock, err
		}
		if l := s.instance(id); l != nil {
			s.log.Warn("a sandbox that is to end is being changed by a call that takes long, so its machine is killed", "sandbox", id)
			l.EndFor(x)
			s.machines.Destroy(l.Machine)
		}
	}
}
