package lifecycle

import (
	"context"
	"slices"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
)

// NetworkLogs has the decisions of gateways of every sandbox.
type NetworkLogs interface {
	// Read returns what is kept of a sandbox's decisions, oldest first.
	Read(id string) ([]bothy.NetworkDecision, error)
	// Sweep forgets the sandboxes that keep says no to.
	Sweep(keep func(id string) bool) error
}

// checkNetwork refuses a policy that a gateway would refuse.
func (s *Service) checkNetwork(n bothy.Network) error {
	if s.o.CheckNetwork == nil {
		return nil
	}
	return s.o.CheckNetwork(n)
}

// NetworkLog shows what a sandbox tried to reach. One that does not run is
// followed to the end of what is kept.
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

// networkLines are the decisions that are kept, oldest first. A line that sums
// up others was written after younger ones.
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

// sweepNetworkLogs forgets the decisions of sandboxes that are forgotten.
func (s *Service) sweepNetworkLogs(ctx context.Context) {
	if s.o.NetworkLogs == nil {
		return
	}
	err := s.o.NetworkLogs.Sweep(func(id string) bool {
		_, err := s.ledger.Sandbox(ctx, id)
		return bothy.ErrorCode(err) != bothy.CodeSandboxNotFound
	})
	if err != nil {
		s.log.Warn("cannot untrack old network logs", "error", err)
	}
}
