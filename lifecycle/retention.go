package lifecycle

import (
	"context"

	"github.com/bothy-dev/bothy"
)

// checkSnapshotQuota refuses one more snapshot to a project whose snapshots
// take up what they may.
func (s *Service) checkSnapshotQuota(ctx context.Context, project string) error {
	quota := s.o.Retention.ProjectBytes
	if quota == 0 {
		return nil
	}
	all, err := s.o.Store.AllSnapshots(ctx)
	if err != nil {
		return err
	}
	var used int64
	for _, n := range all {
		if n.ProjectID == project {
			used += n.SizeBytes
		}
	}
	if used < quota {
		return nil
	}
	return bothy.Errorf(bothy.CodeQuota, "the project's snapshots take up %d MB of the %d MB that they may", used>>20, quota>>20).
		WithHint("Delete snapshots that are not needed: bothy snapshots.")
}

// Prune deletes snapshots beyond their number or time.
func (s *Service) Prune(ctx context.Context) {
	r := s.o.Retention
	if r.PerSandbox == 0 && r.For == 0 {
		return
	}
	all, err := s.o.Store.AllSnapshots(ctx)
	if err != nil {
		s.log.Warn("cannot list snapshots", "error", err)
		return
	}
	kept := map[string]int{}
	for _, n := range newestFirst(all) {
		kept[n.SandboxID]++
		tooMany := r.PerSandbox > 0 && kept[n.SandboxID] > r.PerSandbox
		tooOld := r.For > 0 && s.clock.Now().Sub(n.CreatedAt) > r.For
		if !tooMany && !tooOld {
			continue
		}
		owner := bothy.WithCaller(ctx, &bothy.Caller{ProjectID: n.ProjectID, TokenID: "server", Scopes: bothy.AllScopes})
		switch err := s.DeleteSnapshot(owner, n.ID); bothy.ErrorCode(err) {
		case "":
			s.log.Info("deleted a snapshot beyond what is kept", "snapshot", n.ID, "sandbox", n.SandboxID)
		case bothy.CodeSnapshotInUse, bothy.CodeSnapshotNotFound:
		default:
			s.log.Warn("cannot delete a snapshot", "snapshot", n.ID, "error", err)
		}
	}
}
