package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// Recover takes over what the previous server left: it attaches to running machines, ends
// overdue sandboxes, completes or undoes unfinished operations, and removes machines that
// nothing owns. It returns the number of attached sandboxes.
func (s *Service) Recover(ctx context.Context) (int, error) {
	open, err := s.o.Store.OwnSandboxesInState(ctx, bothy.StateStarting, bothy.StateRunning, bothy.StatePausing, bothy.StateResuming, bothy.StateStopping)
	if err != nil {
		return 0, err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	slots := make(chan struct{}, 8)
	for _, sb := range open {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := s.recoverOne(ctx, sb); err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("recover %s: %w", sb.ID, err))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	s.o.Meter.Recovered()
	errs = append(errs, s.findUnclaimed(ctx))
	s.recovered.Store(true)
	errs = append(errs, s.sweep(ctx), s.listSnapshots(ctx), s.dropPauseSnapshots(ctx), s.sweepCheckpoints(ctx))
	s.Prune(ctx)
	errs = append(errs, s.sweepBuilds(ctx))
	return s.Live(), errors.Join(errs...)
}

// listSnapshots makes the records match the snapshots on disk, in case a server was killed
// between creating or deleting files and records.
func (s *Service) listSnapshots(ctx context.Context) error {
	if s.remote != nil {
		return s.keepSnapshots(ctx)
	}
	ids, err := s.o.Blobs.List(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := s.o.Store.Snapshot(ctx, id); bothy.ErrorCode(err) != bothy.CodeSnapshotNotFound {
			continue
		}
		if err := s.listSnapshot(ctx, id); err != nil {
			s.log.Warn("a snapshot on disk has no valid owner", "snapshot", id, "error", err)
		}
	}
	listed, err := s.o.Store.OwnSnapshots(ctx)
	if err != nil {
		return err
	}
	for _, n := range listed {
		if slices.Contains(ids, n.ID) {
			continue
		}
		s.log.Warn("the files of a snapshot are gone", "snapshot", n.ID, "sandbox", n.SandboxID)
		if err := s.o.Store.DeleteSnapshot(ctx, n.ID); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) listSnapshot(ctx context.Context, id string) error {
	_, m, release, err := s.openSnapshot(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	if m.ProjectID == "" {
		// Manifests of earlier versions lack it.
		sb, err := s.o.Store.Sandbox(ctx, m.SandboxID)
		if err != nil {
			return err
		}
		m.ProjectID = sb.ProjectID
	}
	return s.o.Store.PutSnapshot(ctx, record(m))
}

func (s *Service) recoverOne(ctx context.Context, sb *store.Sandbox) error {
	if sb.State == bothy.StateRunning || sb.State == bothy.StatePausing {
		// A failure is handled by reattach.
		_, _ = s.engines.Need(ctx, sb.Engine)
	}
	ctx, cancel := context.WithTimeout(ctx, s.engines.Patience(sb.Engine, recoverTimeout))
	defer cancel()
	unlock := s.ledger.Lock(sb.ID)
	defer unlock()
	cut, err := s.cutOffFork(ctx, sb)
	if err != nil {
		return err
	}
	if cut {
		return s.ledger.End(ctx, sb, bothy.Exit{Reason: bothy.EndError, Detail: "the server stopped before all copies of the same fork were started"})
	}
	switch sb.State {
	case bothy.StateStarting:
		return s.ledger.End(ctx, sb, bothy.Exit{Reason: bothy.EndError, Detail: "the server stopped while the sandbox was starting"})
	case bothy.StateStopping:
		x := bothy.Exit{Reason: bothy.EndTerminated, Detail: "it was being terminated when the server stopped"}
		if sb.Ending != nil {
			x = *sb.Ending
		}
		return s.ledger.End(ctx, sb, x)
	case bothy.StateRunning:
		return s.reattach(ctx, sb)
	case bothy.StatePausing:
		return s.recoverPausing(ctx, sb)
	case bothy.StateResuming:
		// The machine that was starting is swept; the snapshot is complete.
		s.ledger.ForceTransition(ctx, sb, bothy.StatePaused, nil)
		return nil
	}
	return fmt.Errorf("sandbox is %s", sb.State)
}

// recoverPausing completes a pause whose snapshot exists, and undoes any other.
func (s *Service) recoverPausing(ctx context.Context, sb *store.Sandbox) error {
	var m *snapshot.Manifest
	release := func() {}
	err := error(fs.ErrNotExist)
	if s.remote == nil || s.remote.Local(sb.SnapshotID) {
		_, m, release, err = s.openSnapshot(ctx, sb.SnapshotID)
	}
	if err != nil {
		sb.SnapshotID, sb.EarlierSnapshotID = sb.EarlierSnapshotID, ""
		s.ledger.ForceTransition(ctx, sb, bothy.StateRunning, nil)
		return s.reattach(ctx, sb)
	}
	release()
	m.ProjectID = sb.ProjectID
	n := record(m)
	if err := s.o.Store.PutSnapshot(ctx, n); err != nil {
		s.log.Warn("cannot record a snapshot; the next start will", "snapshot", n.ID, "error", err)
	}
	s.keep(n.ID)
	sb.EngineState, sb.ExpiresAt, sb.HeadSnapshotID = nil, nil, n.ID
	earlier := sb.EarlierSnapshotID
	s.ledger.ForceTransition(ctx, sb, bothy.StatePaused, func() { s.dropPauseSnapshot(ctx, sb, earlier) })
	return nil
}

// dropPauseSnapshots deletes the snapshots of earlier pauses that a killed server did not
// delete.
func (s *Service) dropPauseSnapshots(ctx context.Context) error {
	paused, err := s.o.Store.OwnSandboxesInState(ctx, bothy.StatePaused)
	if err != nil {
		return err
	}
	for _, sb := range paused {
		if len(sb.Checkpoints) > 0 {
			if err := s.tidyCheckpoints(ctx, sb.ID); err != nil {
				s.log.Warn("cannot delete unneeded checkpoints; trying again later", "sandbox", sb.ID, "error", err)
			}
		}
		if sb.EarlierSnapshotID != sb.SnapshotID {
			s.dropPauseSnapshot(ctx, sb, sb.EarlierSnapshotID)
		}
	}
	all, err := s.o.Store.OwnSnapshots(ctx)
	if err != nil {
		return err
	}
	for _, n := range all {
		if n.Name != "" {
			continue
		}
		sb, err := s.ledger.Sandbox(ctx, n.SandboxID)
		if err == nil && sb.ProjectID == n.ProjectID && sb.State.Ended() && sb.SnapshotID == n.ID {
			s.dropPauseSnapshot(ctx, sb, n.ID)
		}
	}
	return nil
}

// Janitor deletes long-ended sandboxes, old events, expired snapshots and whatever else is no
// longer needed, until ctx ends.
func (s *Service) Janitor(ctx context.Context, every, keepEnded time.Duration) {
	repeat(ctx, every, func() {
		s.Prune(ctx)
		if _, err := s.o.Store.DeleteEventsBefore(ctx, s.clock.Now().Add(-keepEnded)); err != nil {
			s.log.Warn("cannot delete old events", "error", err)
		}
		n, err := s.o.Store.DeleteSandboxesEndedBefore(ctx, s.clock.Now().Add(-keepEnded))
		if err != nil {
			s.log.Warn("cannot delete ended sandboxes", "error", err)
		} else if n > 0 {
			s.log.Info("deleted the records of ended sandboxes", "count", n)
		}
		if err := s.sweepCheckpoints(ctx); err != nil {
			s.log.Warn("cannot delete checkpoints that no sandbox has", "error", err)
		}
		if err := s.sweepBuilds(ctx); err != nil {
			s.log.Warn("cannot delete unneeded engine builds", "error", err)
		}
		s.sweepNetworkLogs(ctx)
		s.forgetBudgets(ctx)
	})
}
