package lifecycle

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Rollback returns a sandbox to an earlier snapshot; see bothy.SnapshotService.
func (s *Service) Rollback(ctx context.Context, id, snapshotID string) (*bothy.Sandbox, error) {
	if _, err := s.ledger.Find(ctx, id, bothy.ScopeSandboxesWrite); err != nil {
		return nil, err
	}
	n, err := s.findSnapshot(ctx, snapshotID, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	if n.SandboxID != id {
		return nil, bothy.Errorf(bothy.CodeInvalid, "snapshot %s belongs to sandbox %s, not %s", n.ID, n.SandboxID, id).
			WithHint("Create a new sandbox from it with snapshot_id.")
	}
	unlock, err := s.ledger.LockFor(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx = context.WithoutCancel(ctx)
	sb, err := s.ledger.Sandbox(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.o.Meter.Allow(sb); err != nil {
		return nil, err
	}
	dir, m, done, err := s.openSnapshot(ctx, n.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	from := checking(ctx, dir, m)
	defer from.verified()
	awake := sb.State == bothy.StateRunning
	var ending sync.WaitGroup
	switch sb.State {
	case bothy.StateRunning:
		// Save the current state as a pause would, with a name so that it is kept. The other
		// machine starts meanwhile.
		s.restoreAhead(ctx, sb, from)
		defer s.discardAhead(from)
		how := pausing{hurry: true, keep: n.ID, destroy: func(m bothy.Machine) {
			ending.Add(1)
			s.watchers.must(func() {
				defer ending.Done()
				s.machines.Destroy(m)
			})
		}}
		if _, err := s.pauseKeeping(ctx, id, bothy.PauseOptions{Name: "before rollback to " + displayName(n)}, how); err != nil {
			return nil, err
		}
		if sb, err = s.ledger.Sandbox(ctx, id); err != nil {
			return nil, err
		}
	case bothy.StatePaused:
	default:
		return nil, s.wrongState(sb)
	}
	err = s.rollTo(ctx, sb, n, from)
	if bothy.ErrorCode(err) == bothy.CodeConflict {
		// Some engines cannot start the new machine before the old one is gone.
		ending.Wait()
		err = s.rollTo(ctx, sb, n, from)
	}
	if err != nil && awake {
		ending.Wait()
		return nil, errors.Join(err, s.resumeLocked(ctx, sb, bothy.ResumeOptions{}))
	}
	return sb.Public(), err
}

func displayName(n *bothy.Snapshot) string {
	if n.Name != "" && len(n.Name) < 64 {
		return n.Name
	}
	return n.ID
}

// rollTo resumes a paused sandbox from an earlier snapshot. On failure it stays paused in the
// latest.
func (s *Service) rollTo(ctx context.Context, sb *store.Sandbox, n *bothy.Snapshot, from *openedSnapshot) error {
	reservation, err := s.admission.Reserve(ctx, sb.ProjectID)
	if err != nil {
		return err
	}
	defer reservation.Release()
	latest, head, checkpoints := sb.SnapshotID, sb.HeadSnapshotID, sb.Checkpoints
	// The checkpoints belong to the state that is being left.
	sb.Checkpoints = nil
	if err := s.ledger.Transition(ctx, sb, bothy.StateResuming); err != nil {
		sb.Checkpoints = checkpoints
		return err
	}
	sb.HeadSnapshotID = n.ID
	if err := s.resumeFrom(ctx, sb, from, reservation); err != nil {
		sb.SnapshotID, sb.HeadSnapshotID, sb.Checkpoints = latest, head, checkpoints
		s.ledger.ForceTransition(ctx, sb, bothy.StatePaused, nil)
		return err
	}
	s.dropCheckpoints(ctx, slices.DeleteFunc(checkpoints, func(id string) bool { return needs(sb, id) }))
	s.ledger.Emit(ctx, bothy.EventSandboxRolledBack, sb, map[string]string{"snapshot_id": n.ID, "kept_as": latest})
	return nil
}
