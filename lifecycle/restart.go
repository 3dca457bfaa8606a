package lifecycle

import (
	"context"
	"errors"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/store"
)

// Restart starts a failed sandbox again, under the same id and with the same settings, from
// what it was created from. See bothy.SandboxService.
func (s *Service) Restart(ctx context.Context, id string) (*bothy.Sandbox, error) {
	sb, unlock, err := s.ledger.FindLocked(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch {
	case sb.State == bothy.StateStopped:
		return nil, bothy.Errorf(bothy.CodeConflict, "sandbox %s has ended normally (%s); only failed sandboxes can be restarted", id, sb.Ended.Reason).
			WithHint("Create another: bothy create.")
	case sb.State == bothy.StatePaused:
		return nil, bothy.Errorf(bothy.CodeConflict, "sandbox %s is paused; restarting it would lose its saved state", id).
			WithHint("Resume it: bothy resume %s.", id)
	case sb.State != bothy.StateFailed:
		return nil, bothy.Errorf(bothy.CodeConflict, "sandbox %s is %s; only failed sandboxes can be restarted", id, sb.State).
			WithHint("Use it as it is, or terminate it and create another.")
	}
	if err := s.restartLocked(ctx, sb); err != nil {
		return nil, err
	}
	return sb.Public(), nil
}

func (s *Service) restartLocked(ctx context.Context, sb *store.Sandbox) error {
	if err := s.room(); err != nil {
		return err
	}
	if s.o.Cluster.Shared() {
		if err := s.checkHostLabels(sb.HostLabels); err != nil {
			return err
		}
	}
	if _, err := s.engines.Need(ctx, sb.Engine); err != nil {
		return err
	}
	reason := sb.Ended.Reason
	sb.Ended, sb.Resumed, sb.HostLoss, sb.StartedAt, sb.CheckpointAt = nil, nil, nil, nil, nil
	sb.SnapshotID, sb.EarlierSnapshotID, sb.HeadSnapshotID, sb.OwnSnapshotID, sb.Checkpoints = "", "", "", "", nil
	sb.Forking = ""
	if err := s.check(&sb.Sandbox); err != nil {
		return err
	}
	if err := s.allow(ctx, sb); err != nil {
		return err
	}
	start, from, done, err := s.startAgain(ctx, sb)
	if err != nil {
		return err
	}
	defer done()
	reservation, err := s.admission.Reserve(ctx, sb.ProjectID)
	if err != nil {
		return err
	}
	defer reservation.Release()
	if sb.BudgetRoot == sb.ID && sb.Budget > 0 {
		// The budget may have been dropped since the sandbox ended.
		if err := s.o.Meter.SetTreeBudget(ctx, sb.ID, sb.ProjectID, sb.Budget); err != nil {
			return err
		}
	}
	if err := s.ledger.Transition(ctx, sb, bothy.StateStarting); err != nil {
		return err
	}
	l, err := start()
	if err != nil {
		err = s.startFault(err)
		s.log.Warn("sandbox did not start again", "sandbox", sb.ID, "error", err)
		x := bothy.Exit{Reason: bothy.EndError, Detail: "cannot restart it: " + bothy.AsError(err).Detail}
		return errors.Join(err, s.ledger.End(context.WithoutCancel(ctx), sb, x))
	}
	l.Fresh = sb.Resumed == nil
	s.track(l, sb, reservation)
	data := map[string]string{"template": sb.Template, "after": string(reason)}
	if from != "" {
		data["snapshot_id"] = from
	}
	s.ledger.Emit(ctx, bothy.EventSandboxRestarted, sb, data)
	return nil
}

// startAgain returns how to start a sandbox from what it was created from: a snapshot if that
// still exists, else its template. done must be called after the start.
func (s *Service) startAgain(ctx context.Context, sb *store.Sandbox) (start func() (*instance.Instance, error), snapshot string, done func(), err error) {
	none := func() {}
	if id := sb.ParentSnapshotID; id != "" {
		n, err := s.o.Store.Snapshot(ctx, id)
		if err == nil && n.ProjectID == sb.ProjectID {
			return s.startAgainFrom(ctx, sb, id)
		}
		if err != nil && bothy.ErrorCode(err) != bothy.CodeSnapshotNotFound {
			return nil, "", none, err
		}
	}
	now, lookup := s.o.Templates.LookupFor(ctx, sb.ProjectID, sb.Template)
	if lookup == nil && now.Memory != nil && now.Memory.BaseDigest == sb.TemplateDigest && now.Memory.Engine == sb.Engine {
		return s.startAgainFrom(ctx, sb, now.Memory.SnapshotID)
	}
	t, err := s.templateOf(ctx, sb.ProjectID, sb.Template, sb.TemplateDigest)
	if err != nil {
		// The image is gone: use the template that now has its name.
		if t, err = now, lookup; err != nil {
			return nil, "", none, err
		}
		sb.TemplateDigest = t.Digest
	}
	return func() (*instance.Instance, error) { return s.startNew(ctx, sb, t) }, "", none, nil
}

func (s *Service) startAgainFrom(ctx context.Context, sb *store.Sandbox, id string) (start func() (*instance.Instance, error), snapshot string, done func(), err error) {
	dir, m, release, err := s.openSnapshot(ctx, id)
	if err != nil {
		return nil, "", func() {}, err
	}
	if sb.ParentSnapshotID == id {
		sb.HeadSnapshotID = id
	}
	from := checking(ctx, dir, m)
	return func() (*instance.Instance, error) { return s.startFrom(ctx, sb, from) }, id, func() { _ = from.verified(); release() }, nil
}
