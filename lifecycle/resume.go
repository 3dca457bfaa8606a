package lifecycle

import (
	"context"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/admission"
	"github.com/bothy-dev/bothy/store"
)

// Resume resumes a paused sandbox; see bothy.SnapshotService.
func (s *Service) Resume(ctx context.Context, id string, o bothy.ResumeOptions) (*bothy.Sandbox, error) {
	if strings.HasPrefix(id, "snp") {
		n, err := s.findSnapshot(ctx, id, bothy.ScopeSandboxesRead)
		if err != nil {
			return nil, err
		}
		sb, err := s.ledger.Find(ctx, n.SandboxID, bothy.ScopeSandboxesWrite)
		if err != nil {
			return nil, err
		}
		if sb.State != bothy.StatePaused || sb.SnapshotID != id {
			return nil, bothy.Errorf(bothy.CodeConflict, "sandbox %s is not paused in snapshot %s: it is %s", sb.ID, id, sb.State).
				WithHint("Roll it back to the snapshot, or create a new sandbox with snapshot_id.")
		}
		id = sb.ID
	}
	sb, unlock, err := s.ledger.FindLocked(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch {
	case sb.State == bothy.StateRunning:
		return nil, bothy.Errorf(bothy.CodeConflict, "sandbox %s is already running", id).WithHint("Use it as it is.")
	case sb.State != bothy.StatePaused:
		return nil, s.wrongState(sb)
	}
	return sb.Public(), s.resumeLocked(ctx, sb, o)
}

// resumeLocked resumes sb from the snapshot that it is paused in, and updates it.
func (s *Service) resumeLocked(ctx context.Context, sb *store.Sandbox, o bothy.ResumeOptions) error {
	if err := s.o.Meter.Allow(sb); err != nil {
		return err
	}
	if err := s.room(); err != nil {
		return err
	}
	reservation, err := s.admission.Reserve(ctx, sb.ProjectID)
	if err != nil {
		return err
	}
	defer reservation.Release()
	lost := sb.HostLoss != nil && sb.HostLoss.SnapshotID == sb.SnapshotID
	if err := s.ledger.Transition(ctx, sb, bothy.StateResuming); err != nil {
		return err
	}
	if err := s.resumeFromLatest(ctx, sb, o, reservation); err != nil {
		s.ledger.ForceTransition(ctx, sb, bothy.StatePaused, nil)
		return s.startFault(err)
	}
	data := map[string]string{"snapshot_id": sb.SnapshotID, "kind": string(sb.Resumed.Kind)}
	if lost {
		s.dropLostCheckpoints(ctx, sb)
		data["after"], data["age_seconds"] = bothy.EventSandboxHostLost, strconv.Itoa(sb.HostLoss.AgeSeconds)
	}
	s.ledger.Emit(ctx, bothy.EventSandboxResumed, sb, data)
	return nil
}

// resumeFromLatest starts sb from the snapshot that it is paused in.
func (s *Service) resumeFromLatest(ctx context.Context, sb *store.Sandbox, o bothy.ResumeOptions, r *admission.Reservation) error {
	dir, m, done, err := s.openSnapshot(ctx, sb.SnapshotID)
	if err != nil {
		return err
	}
	defer done()
	from := checking(ctx, dir, m)
	from.filesOnly = o.FilesOnly
	return s.resumeFrom(ctx, sb, from, r)
}

// resumeFrom starts sb from a snapshot, with sb's own limits and policy. On failure the machine
// is destroyed.
func (s *Service) resumeFrom(ctx context.Context, sb *store.Sandbox, from *openedSnapshot, r *admission.Reservation) error {
	l, err := s.startFrom(ctx, sb, from)
	if err != nil {
		return err
	}
	s.track(l, sb, r)
	return nil
}
