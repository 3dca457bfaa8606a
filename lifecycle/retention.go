package lifecycle

import (
	"context"
	"fmt"

	"github.com/bothy-dev/bothy"
)

// checkSnapshotQuota refuses one more snapshot, of so many bytes, to a project
// whose snapshots would take up more than they may. With 0 bytes, which is before
// the size is known, it refuses what is sure to be too much.
func (s *Service) checkSnapshotQuota(ctx context.Context, project string, bytes int64) error {
	quota, err := s.snapshotQuota(ctx, project)
	if err != nil || quota == 0 || ctx.Value(beyondQuotaKey{}) != nil {
		return err
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
	if used+max(bytes, 1) <= quota {
		return nil
	}
	var more string
	if bytes > 0 {
		more = fmt.Sprintf(", and this one would take up %d MB more", bytes>>20)
	}
	return bothy.Errorf(bothy.CodeQuota, "the project's snapshots take up %d MB of the %d MB that they may%s", used>>20, quota>>20, more).
		WithHint("Delete snapshots that are not needed: `bothy snapshots` lists them, `bothy snapshots rm` deletes.")
}

// pruneSoon deletes what is one too many, once nobody holds the sandbox that has
// just been written down.
func (s *Service) pruneSoon() {
	if s.o.Retention.PerSandbox > 0 && s.background.Err() == nil {
		s.watchers.Go(func() { s.Prune(s.background) })
	}
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
