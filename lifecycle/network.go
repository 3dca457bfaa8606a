package lifecycle

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
)

// NetworkLog shows what a sandbox tried to reach.
func (s *Service) NetworkLog(ctx context.Context, id string, since time.Time, follow bool, fn func(bothy.NetworkDecision) error) error {
	l, err := s.running(ctx, id, bothy.ScopeSandboxesRead)
	if err != nil {
		return err
	}
	if follow {
		return l.gateway.Follow(ctx, since, fn)
	}
	for _, d := range l.gateway.Log(since) {
		if err := fn(d); err != nil {
			return err
		}
	}
	return nil
}
