package lifecycle

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/lifecycle/instance"
)

// Terminate ends a sandbox at its owner's request.
func (s *Service) Terminate(ctx context.Context, id string) error {
	if _, err := s.ledger.Find(ctx, id, bothy.ScopeSandboxesWrite); err != nil {
		return err
	}
	// Finish even if the caller leaves.
	ctx = context.WithoutCancel(ctx)
	if s.instance(id) == nil {
		claimed, err := s.o.Cluster.ClaimDead(ctx, id)
		if err != nil {
			return err
		}
		if claimed {
			s.Claimed(id)
		}
	}
	if err := s.terminate(ctx, id, bothy.Exit{Reason: bothy.EndTerminated, Detail: "a client terminated it"}); err != nil {
		return err
	}
	if s.o.Cluster.Shared() && s.ledger.Unsaved(id) != nil {
		// Until it is stored, the other hosts may take this one for dead, and resume the sandbox.
		e := bothy.Errorf(bothy.CodeStore, "sandbox %s has ended on this host, but that could not be stored yet", id).
			WithHint("Try again in a few seconds: if this host is lost before it can store that, another one may resume the sandbox.")
		e.RetryAfter = retryAfter
		return e
	}
	return nil
}

// terminate ends a sandbox. If it has already ended it does nothing.
func (s *Service) terminate(ctx context.Context, id string, x bothy.Exit) error {
	unlock, err := s.lockToEnd(ctx, id, x)
	if err != nil {
		return err
	}
	defer unlock()
	return s.terminateLocked(ctx, id, x)
}

func (s *Service) terminateLocked(ctx context.Context, id string, x bothy.Exit) error {
	sb, err := s.ledger.Sandbox(ctx, id)
	if err != nil || sb.State.Ended() {
		return err
	}
	if err := s.departures.elsewhere(id); err != nil {
		return err
	}
	sleeps := append([]string{sb.SnapshotID, sb.EarlierSnapshotID}, sb.Checkpoints...)
	// Delete the snapshots only after the row, which refers to them, is stored as ended.
	dropPauseSnapshots := func() {
		_ = failpoint.Hit("lifecycle.ended")
		for _, id := range sleeps {
			s.dropPauseSnapshot(ctx, sb, id)
		}
		if sb.HostLoss != nil {
			s.dropLostCheckpoints(ctx, sb)
		}
	}
	l := s.instance(id)
	if l == nil {
		u := s.dropUnattached(id)
		err := s.ledger.EndThen(ctx, sb, x, dropPauseSnapshots)
		if u != nil {
			s.endUnattached(u)
		}
		return err
	}
	if sb.State == bothy.StateRunning {
		sb.Ending = &x
		// Continue without the store: on a full disk, ending sandboxes makes room. If the
		// server dies now, the next one finds that the machine is gone.
		if err := s.ledger.Transition(ctx, sb, bothy.StateStopping); err != nil {
			s.log.Warn("cannot store that a sandbox is ending", "sandbox", id, "error", err)
		}
	}
	s.untrackEnding(l)
	s.machines.Destroy(l.Machine)
	defer l.Ended()
	return s.ledger.EndThen(ctx, sb, x, dropPauseSnapshots)
}

// untrackEnding untracks a machine whose end is expected.
func (s *Service) untrackEnding(l *instance.Instance) {
	l.ExpectEnd()
	s.untrack(l)
}
