package lifecycle

import (
	"context"
	"slices"

	"github.com/bothy-dev/bothy"
)

// pruneSoon deletes what a sandbox has too many of, once no call holds the sandbox that
// has just been written down.
func (s *Service) pruneSoon(project, sandbox string) {
	if s.o.Retention.PerSandbox > 0 && s.background.Err() == nil {
		s.watchers.Go(func() { s.pruneSandbox(s.background, project, sandbox) })
	}
}

// pruneSandbox deletes the snapshots of one sandbox beyond their number.
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

// Prune deletes snapshots beyond their number or time.
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
	// What one project says about a sandbox must not cost another anything.
	type owned struct{ project, sandbox string }
	kept := map[owned]int{}
	for _, n := range newestFirst(all) {
		if n.Checkpoint {
			continue // they are few, and go by themselves
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
		s.log.Info("deleted a snapshot beyond what is kept", "snapshot", n.ID, "sandbox", n.SandboxID)
	case bothy.CodeSnapshotInUse, bothy.CodeSnapshotNotFound:
	default:
		s.log.Warn("cannot delete a snapshot", "snapshot", n.ID, "error", err)
	}
}

func newestFirst(list []*bothy.Snapshot) []*bothy.Snapshot {
	return slices.SortedFunc(slices.Values(list), func(a, b *bothy.Snapshot) int { return b.CreatedAt.Compare(a.CreatedAt) })
}
