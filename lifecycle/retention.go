package lifecycle

import (
	"context"
	"slices"

	"github.com/bothy-dev/bothy"
)

// pruneSoon deletes surplus snapshots of a sandbox in the background, once its lock is free.
func (s *Service) pruneSoon(project, sandbox string) {
	if s.o.Retention.PerSandbox > 0 && s.background.Err() == nil {
		s.watchers.Go(func() { s.pruneSandbox(s.background, project, sandbox) })
	}
}

// pruneSandbox deletes the snapshots of one sandbox that exceed PerSandbox.
func (s *Service) pruneSandbox(ctx context.Context, project, sandbox string) {
	kept := 0
	f := bothy.SnapshotFilter{SandboxID: sandbox, Limit: 1000}
	for {
		page, err := s.o.Store.Snapshots(ctx, project, f)
		if err != nil {
			s.log.Warn("cannot list snapshots", "error", err)
			return
		}
		for _, n := range page.Items {
			if n.Checkpoint {
				continue
			}
			if kept++; kept > s.o.Retention.PerSandbox {
				s.prune(ctx, n)
			}
		}
		if f.Cursor = page.NextCursor; f.Cursor == "" {
			return
		}
	}
}

// Prune deletes snapshots that are too many or too old.
func (s *Service) Prune(ctx context.Context) {
	r := s.o.Retention
	if r.PerSandbox == 0 && r.For == 0 {
		return
	}
	all, err := s.o.Store.OwnSnapshots(ctx)
	if err != nil {
		s.log.Warn("cannot list snapshots", "error", err)
		return
	}
	// Imported manifests may claim any sandbox id, so count per project as well.
	type owned struct{ project, sandbox string }
	kept := map[owned]int{}
	for _, n := range newestFirst(all) {
		if n.Checkpoint {
			continue // these are deleted by other rules
		}
		of := owned{n.ProjectID, n.SandboxID}
		kept[of]++
		tooMany := r.PerSandbox > 0 && kept[of] > r.PerSandbox
		tooOld := r.For > 0 && s.clock.Now().Sub(n.CreatedAt) > r.For
		if tooMany || tooOld {
			s.prune(ctx, n)
		}
	}
}

func (s *Service) prune(ctx context.Context, n *bothy.Snapshot) {
	owner := bothy.WithCaller(ctx, &bothy.Caller{ProjectID: n.ProjectID, TokenID: "server", Scopes: bothy.AllScopes})
	switch err := s.DeleteSnapshot(owner, n.ID); bothy.ErrorCode(err) {
	case "":
		s.log.Info("deleted a snapshot beyond the retention limits", "snapshot", n.ID, "sandbox", n.SandboxID)
	case bothy.CodeSnapshotInUse, bothy.CodeSnapshotNotFound:
	default:
		s.log.Warn("cannot delete a snapshot", "snapshot", n.ID, "error", err)
	}
}

func newestFirst(list []*bothy.Snapshot) []*bothy.Snapshot {
	return slices.SortedFunc(slices.Values(list), func(a, b *bothy.Snapshot) int { return b.CreatedAt.Compare(a.CreatedAt) })
}
