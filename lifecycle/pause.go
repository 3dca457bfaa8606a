package lifecycle

import (
	"context"
	"errors"
	"slices"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/store"
)

// Pause freezes a sandbox; see bothy.SnapshotService.
func (s *Service) Pause(ctx context.Context, id string, o bothy.PauseOptions) (*bothy.Snapshot, error) {
	if _, err := s.ledger.Find(ctx, id, bothy.ScopeSandboxesWrite); err != nil {
		return nil, err
	}
	if err := errors.Join(checkName(o.Name), s.checkWait(o.Wait)); err != nil {
		return nil, err
	}
	n, err := s.pause(ctx, id, o)
	if err != nil {
		return nil, err
	}
	return s.waitStored(ctx, n, o.Wait), nil
}

func (s *Service) pause(ctx context.Context, id string, o bothy.PauseOptions) (*bothy.Snapshot, error) {
	unlock, err := s.ledger.LockFor(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	// Finish the pause even if the caller leaves.
	return s.pauseLocked(context.WithoutCancel(ctx), id, o)
}

// pauseLocked pauses a sandbox whose lock the caller holds.
func (s *Service) pauseLocked(ctx context.Context, id string, o bothy.PauseOptions) (*bothy.Snapshot, error) {
	return s.pauseKeeping(ctx, id, o, pausing{destroy: s.machines.Destroy})
}

// pausing configures a pause.
type pausing struct {
	// hurry prefers a fast snapshot over a small one.
	hurry bool
	// keep is a snapshot that is still needed even if an earlier pause made it.
	keep string
	// destroy destroys the machine.
	destroy func(bothy.Machine)
}

// pauseKeeping is pauseLocked for a caller that continues with the sandbox.
func (s *Service) pauseKeeping(ctx context.Context, id string, o bothy.PauseOptions, how pausing) (_ *bothy.Snapshot, err error) {
	sb, err := s.ledger.Sandbox(ctx, id)
	if err != nil {
		return nil, err
	}
	if sb.State == bothy.StatePaused {
		return nil, bothy.Errorf(bothy.CodeSandboxPaused, "sandbox %s is already paused, in snapshot %s", id, sb.SnapshotID).
			WithHint("It stays paused until it is resumed: bothy resume %s.", id)
	}
	l := s.instance(id)
	if sb.State != bothy.StateRunning || l == nil {
		return nil, s.wrongState(sb)
	}
	l.Activity.Close()
	defer func() {
		if err != nil {
			l.Activity.Reopen()
		}
	}()
	kind := bothy.SnapshotMemory
	if o.FilesOnly {
		kind = bothy.SnapshotFiles
	}
	before := sb.SnapshotID
	sb.SnapshotID = instance.NewID("snp")
	if before != how.keep {
		sb.EarlierSnapshotID = before
	}
	if err := s.ledger.Transition(ctx, sb, bothy.StatePausing); err != nil {
		return nil, err
	}
	n, err := s.writeSnapshot(ctx, l, sb, snapshotOptions{id: sb.SnapshotID, name: o.Name, kind: kind, stop: true, hurry: how.hurry})
	if err != nil {
		sb.SnapshotID, sb.EarlierSnapshotID = before, ""
		s.ledger.ForceTransition(ctx, sb, bothy.StateRunning, nil)
		return nil, err
	}
	head := sb.HeadSnapshotID
	if err := s.finishPause(ctx, l, sb, n, how.keep, how.destroy); err != nil {
		sb.SnapshotID, sb.EarlierSnapshotID, sb.HeadSnapshotID = before, "", head
		sb.EngineState, sb.ExpiresAt = l.Machine.State(), expiry(s.clock.Now().UTC(), sb.TimeoutSeconds)
		err = errors.Join(err, s.thaw(ctx, l), s.dropSnapshot(ctx, n.ID))
		s.ledger.ForceTransition(ctx, sb, bothy.StateRunning, nil)
		return nil, err
	}
	if before != how.keep {
		s.dropPauseSnapshot(ctx, sb, before)
	}
	return n, nil
}

// finishPause stores the sandbox as paused, and destroys its machine. Its checkpoints are
// deleted, except keep.
func (s *Service) finishPause(ctx context.Context, l *instance.Instance, sb *store.Sandbox, n *bothy.Snapshot, keep string, destroy func(bothy.Machine)) error {
	sb.EngineState, sb.ExpiresAt, sb.HeadSnapshotID = nil, nil, n.ID
	checkpoints := sb.Checkpoints
	if s.remote == nil { // with object storage they are deleted once this snapshot is uploaded
		sb.Checkpoints = nil
	}
	// Whoever sees it as paused may resume it, and must not find the old machine.
	s.setTracked(l, false)
	if err := s.ledger.Transition(ctx, sb, bothy.StatePaused); err != nil {
		s.setTracked(l, true)
		sb.Checkpoints = checkpoints
		return err
	}
	_ = failpoint.Hit("lifecycle.asleep")
	s.untrackEnding(l)
	destroy(l.Machine)
	l.Ended()
	s.ledger.Emit(ctx, bothy.EventSandboxPaused, sb, map[string]string{"snapshot_id": n.ID, "kind": string(n.Kind)})
	if s.remote == nil {
		checkpoints = slices.DeleteFunc(checkpoints, func(id string) bool { return id == keep || needs(sb, id) })
		s.dropCheckpoints(ctx, checkpoints)
	}
	return nil
}
