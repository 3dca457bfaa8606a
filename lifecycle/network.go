package lifecycle

import (
	"context"
	"slices"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
)

// NetworkLogs stores the network decisions for every sandbox.
type NetworkLogs interface {
	// Read returns the stored decisions of a sandbox, oldest first.
	Read(id string) ([]bothy.NetworkDecision, error)
	// Sweep deletes the logs of sandboxes for which keep returns false.
	Sweep(keep func(id string) bool) error
}

// checkNetwork returns the error that a gateway would return for a policy.
func (s *Service) checkNetwork(n bothy.Network) error {
	if s.o.CheckNetwork == nil {
		return nil
	}
	return s.o.CheckNetwork(n)
}

// NetworkLog returns what a sandbox tried to reach. For a sandbox that is not running, follow
// ends after the stored decisions.
func (s *Service) NetworkLog(ctx context.Context, id string, since time.Time, follow bool, fn func(bothy.NetworkDecision) error) error {
	sb, err := s.ledger.Find(ctx, id, bothy.ScopeSandboxesRead)
	if err != nil {
		return err
	}
	l := s.instance(sb.ID)
	if l != nil && follow {
		return l.Gateway.Follow(ctx, since, fn)
	}
	lines, err := s.networkLines(sb.ID, l, since)
	if err != nil {
		return err
	}
	for _, d := range lines {
		if err := fn(d); err != nil {
			return err
		}
	}
	return nil
}

// networkLines returns the stored decisions, oldest first. They need sorting, since a line that
// summarises others is written after newer ones.
func (s *Service) networkLines(id string, l *instance.Instance, since time.Time) (lines []bothy.NetworkDecision, err error) {
	switch {
	case l != nil:
		lines = l.Gateway.Log(since)
	case s.o.NetworkLogs != nil:
		if lines, err = s.o.NetworkLogs.Read(id); err != nil {
			return nil, err
		}
		lines = slices.DeleteFunc(lines, func(d bothy.NetworkDecision) bool { return d.Time.Before(since) })
	}
	slices.SortStableFunc(lines, func(a, b bothy.NetworkDecision) int { return a.Time.Compare(b.Time) })
	return lines, nil
}

// sweepNetworkLogs deletes the logs of sandboxes that are no longer stored.
func (s *Service) sweepNetworkLogs(ctx context.Context) {
	if s.o.NetworkLogs == nil {
		return
	}
	err := s.o.NetworkLogs.Sweep(func(id string) bool {
		_, err := s.ledger.Sandbox(ctx, id)
		return bothy.ErrorCode(err) != bothy.CodeSandboxNotFound
	})
	if err != nil {
		s.log.Warn("cannot delete old network logs", "error", err)
	}
}
