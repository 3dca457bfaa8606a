package lifecycle

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/store"
)

// A checkpoint is a live snapshot that the server takes by itself, so that losing a host loses
// only what happened since. The sandbox's row lists its checkpoints: the newest and, until that
// is in the object storage, the newest one that is. A checkpoint that no row lists, because a
// server died in between, is recognised by its mark and deleted.

const (
	// checkpointsAtOnce limits concurrent checkpoints on this host: they write a lot.
	checkpointsAtOnce = 2
	// checkpointPatience is how long a checkpoint waits for another operation on the sandbox,
	// and checkpointSoon how long after a postponed one the next attempt is.
	checkpointPatience = 2 * time.Second
	checkpointSoon     = 5 * time.Second
	// storePatience is how long the next checkpoint waits for the upload of the last, so that
	// slow storage gets complete ones. After that, a newer one is at least on the host's disk.
	storePatience = 5 * time.Minute
	// checkpointBackoff is the longest that one waits because the last took long and failed.
	checkpointBackoff = time.Hour
)

// CheckpointCounts are the outcomes of checkpoints. Skipped were unnecessary because nothing
// had changed. Oldest is the age of the oldest last saved state of any sandbox.
type CheckpointCounts struct {
	Taken, Skipped, Failed int64
	Oldest                 time.Duration
}

type checkpointCounts struct{ taken, skipped, failed atomic.Int64 }

// Checkpoints returns the outcomes of checkpoints.
func (s *Service) Checkpoints() CheckpointCounts {
	c := CheckpointCounts{Taken: s.checkpoints.taken.Load(), Skipped: s.checkpoints.skipped.Load(), Failed: s.checkpoints.failed.Load()}
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.instances {
		if at := l.Checkpoints.Saved(); !at.IsZero() {
			c.Oldest = max(c.Oldest, now.Sub(at))
		}
	}
	return c
}

// watchCheckpoints sets or clears the timer for the next checkpoint of a sandbox.
func (s *Service) watchCheckpoints(l *instance.Instance, sb *store.Sandbox) {
	every := time.Duration(sb.CheckpointSeconds) * time.Second
	if every <= 0 {
		l.Checkpoints.Stop()
		return
	}
	// The state at its start and at its last checkpoint is saved.
	var saved time.Time
	for _, at := range []*time.Time{sb.StartedAt, sb.CheckpointAt} {
		if at != nil && at.After(saved) {
			saved = *at
		}
	}
	if now := s.clock.Now(); saved.After(now) {
		saved = now // it was saved on a host whose clock is ahead
	}
	l.Checkpoints.Start(saved, func() (stop func() bool) { return s.checkpointAfter(l, max(0, saved.Add(every).Sub(s.clock.Now()))) })
}

func (s *Service) checkpointAfter(l *instance.Instance, d time.Duration) (stop func() bool) {
	return s.clock.AfterFunc(d, func() { s.checkpoint(l) })
}

// checkpoint takes a checkpoint that is due, and sets the timer for the next.
func (s *Service) checkpoint(l *instance.Instance) {
	s.mu.Lock()
	gone := s.instances[l.ID] != l || s.background.Err() != nil
	s.mu.Unlock()
	if gone || !s.watchers.begin() { // Close waits for checkpoints in progress
		return
	}
	defer s.watchers.done()
	next, err := s.checkpointNow(s.background, l)
	if err != nil && s.background.Err() == nil && !l.EndExpected() {
		s.checkpointFailed(l, err)
	}
	l.Checkpoints.Again(func() (stop func() bool) { return s.checkpointAfter(l, next) })
}

// checkpointFailed counts a failure. It emits an event for the 1st, 2nd, 4th, 8th… consecutive
// one.
func (s *Service) checkpointFailed(l *instance.Instance, err error) {
	s.checkpoints.failed.Add(1)
	n := l.Checkpoints.Fail()
	s.log.Warn("cannot take a checkpoint", "sandbox", l.ID, "failures", n, "error", err)
	if n&(n-1) == 0 {
		s.ledger.EmitFor(s.background, bothy.EventSandboxCheckpointFailed, l.ID, l.Project,
			map[string]string{"detail": bothy.AsError(err).Detail, "failures": strconv.Itoa(n)})
	}
}

// checkpointNow takes a checkpoint unless it is unnecessary, and returns when to look again.
func (s *Service) checkpointNow(ctx context.Context, l *instance.Instance) (next time.Duration, err error) {
	select {
	case s.checkpointSlots <- struct{}{}:
		defer func() { <-s.checkpointSlots }()
	case <-ctx.Done():
		return checkpointSoon, nil
	}
	unlock, err := s.ledger.LockWithin(ctx, l.ID, checkpointPatience)
	if err != nil {
		return checkpointSoon, nil // another operation is in progress
	}
	defer unlock()
	sb, err := s.ledger.Sandbox(ctx, l.ID)
	if err != nil {
		return checkpointSoon, ignoreNotFound(err)
	}
	every := time.Duration(sb.CheckpointSeconds) * time.Second
	if sb.State != bothy.StateRunning || s.instance(l.ID) != l || every <= 0 {
		return checkpointSoon, nil
	}
	if s.machines.Suspended() || l.Checkpoints.Held() {
		return checkpointSoon, nil // it is frozen, or about to move
	}
	if l.RestedSince(l.Checkpoints.Rest()) && s.hasCheckpoint(ctx, sb) {
		s.checkpoints.skipped.Add(1)
		l.Checkpoints.Save(s.clock.Now())
		return every, nil
	}
	if s.isUploadingLast(ctx, sb, every) {
		return min(every, checkpointSoon), nil
	}
	begun := s.clock.Now()
	if err := s.takeCheckpoint(context.WithoutCancel(ctx), l, sb); err != nil {
		// One that fails slowly leaves its slot to others for longer each time.
		wait := s.clock.Now().Sub(begun) << min(l.Checkpoints.Failures()+1, 10)
		return max(every, min(wait, checkpointBackoff)), err
	}
	return every, nil
}

// hasCheckpoint reports whether the last checkpoint still exists: its owner may have deleted
// it.
func (s *Service) hasCheckpoint(ctx context.Context, sb *store.Sandbox) bool {
	if len(sb.Checkpoints) == 0 {
		return false
	}
	_, err := s.o.Store.Snapshot(ctx, sb.Checkpoints[0])
	return bothy.ErrorCode(err) != bothy.CodeSnapshotNotFound
}

// isUploadingLast reports whether the last checkpoint is still being uploaded.
func (s *Service) isUploadingLast(ctx context.Context, sb *store.Sandbox, every time.Duration) bool {
	if s.remote == nil || len(sb.Checkpoints) == 0 {
		return false
	}
	n, err := s.o.Cluster.TimedSnapshot(ctx, sb.Checkpoints[0])
	return err == nil && n.Durable != bothy.DurableStore && s.clock.Now().Sub(n.CreatedAt) < max(storePatience, 3*every)
}

// takeCheckpoint takes a checkpoint of a sandbox whose lock the caller holds.
func (s *Service) takeCheckpoint(ctx context.Context, l *instance.Instance, sb *store.Sandbox) error {
	rest := s.machines.Rest(ctx, l)
	before, merr := l.Machine.Stats(ctx)
	n, err := s.writeSnapshot(ctx, l, sb, snapshotOptions{id: instance.NewID("snp"), kind: bothy.SnapshotMemory, checkpoint: true})
	if after, err := l.Machine.Stats(ctx); err == nil && merr == nil {
		// The CPU time of the checkpoint is not the sandbox's activity.
		l.Activity.Discount(after.CPUSeconds - before.CPUSeconds)
	}
	if err != nil {
		return err
	}
	all := append([]string{n.ID}, sb.Checkpoints...)
	was, at := *sb, n.CreatedAt
	sb.CheckpointAt = &at
	keep, drop := s.sortCheckpoints(ctx, sb, all)
	sb.Checkpoints = keep
	if err := s.ledger.Put(ctx, sb); err != nil {
		*sb = was
		return errors.Join(err, s.dropSnapshot(ctx, n.ID))
	}
	s.checkpoints.taken.Add(1)
	l.Checkpoints.Took(at, rest)
	s.dropCheckpoints(ctx, drop)
	return nil
}

// sortCheckpoints decides which checkpoints of a sandbox, newest first, are still needed.
func (s *Service) sortCheckpoints(ctx context.Context, sb *store.Sandbox, all []string) (keep, drop []string) {
	stored := func(id string) bool {
		n, err := s.o.Store.Snapshot(ctx, id)
		return err == nil && n.Durable == bothy.DurableStore
	}
	// The snapshot that it resumes from is newer than its checkpoints.
	enough := sb.State.Ended() || sb.State == bothy.StatePaused && (s.remote == nil || stored(sb.SnapshotID))
	for _, id := range all {
		switch {
		case needs(sb, id):
			// The sandbox deletes it when it no longer needs it.
		case enough:
			drop = append(drop, id)
		default:
			keep = append(keep, id)
			enough = s.remote == nil || stored(id)
			if len(keep) > 1 && !enough { // an older one is of use only if it is in the object storage
				keep, drop = keep[:len(keep)-1], append(drop, id)
			}
		}
	}
	return keep, drop
}

// needs reports whether a sandbox needs a snapshot, whether or not it is a checkpoint.
func needs(sb *store.Sandbox, id string) bool {
	return !sb.State.Ended() && slices.Contains([]string{sb.SnapshotID, sb.EarlierSnapshotID, sb.HeadSnapshotID}, id)
}

func (s *Service) dropCheckpoints(ctx context.Context, ids []string) {
	for _, id := range ids {
		if err := s.dropSnapshot(ctx, id); err != nil {
			s.log.Warn("cannot delete an old checkpoint; trying again later", "snapshot", id, "error", err)
		}
	}
}

// tidyCheckpoints deletes the checkpoints that a sandbox no longer needs.
func (s *Service) tidyCheckpoints(ctx context.Context, id string) error {
	unlock, err := s.ledger.LockToWork(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	sb, err := s.ledger.Sandbox(ctx, id)
	if err != nil {
		return ignoreNotFound(err)
	}
	keep, drop := s.sortCheckpoints(ctx, sb, sb.Checkpoints)
	if len(drop) == 0 {
		return nil
	}
	sb.Checkpoints = keep
	if err := s.ledger.Put(ctx, sb); err != nil {
		if bothy.ErrorCode(err) == bothy.CodeMisdirected {
			return nil // it moved to another host, which deletes them
		}
		return err
	}
	s.dropCheckpoints(ctx, drop)
	return nil
}

// checkpointStored deletes checkpoints that are no longer needed once a snapshot is in the
// object storage.
func (s *Service) checkpointStored(n *bothy.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.background.Err() != nil {
		return
	}
	s.watchers.Go(func() {
		sb, err := s.ledger.Sandbox(s.background, n.SandboxID)
		if err == nil && len(sb.Checkpoints) > 0 && (n.Checkpoint || sb.SnapshotID == n.ID) {
			err = s.tidyCheckpoints(s.background, sb.ID)
		}
		if ignoreNotFound(err) != nil && s.background.Err() == nil {
			s.log.Warn("cannot delete unneeded checkpoints; trying again later", "sandbox", n.SandboxID, "error", err)
		}
	})
}

// dropLostCheckpoints deletes checkpoints that the sandbox's row does not list since they were
// lost with its host. The caller holds its lock.
func (s *Service) dropLostCheckpoints(ctx context.Context, sb *store.Sandbox) {
	page, err := s.o.Store.Snapshots(ctx, sb.ProjectID, bothy.SnapshotFilter{SandboxID: sb.ID, Limit: 1000})
	if err != nil {
		s.log.Warn("cannot delete checkpoints that were lost with a host; trying again later", "sandbox", sb.ID, "error", err)
		return
	}
	var lost []string
	for _, n := range page.Items {
		if n.Checkpoint && !needs(sb, n.ID) && !slices.Contains(sb.Checkpoints, n.ID) {
			lost = append(lost, n.ID)
		}
	}
	s.dropCheckpoints(ctx, lost)
}

// sweepCheckpoints deletes checkpoints that no sandbox lists. It does nothing if the database
// has lost records, since a sandbox may then need one that its row does not list.
func (s *Service) sweepCheckpoints(ctx context.Context) error {
	if s.doubtful() || s.hasUnclaimed() {
		return nil
	}
	all, err := s.o.Store.OwnSnapshots(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range all {
		if n.Checkpoint {
			errs = append(errs, s.sweepCheckpoint(ctx, n))
		}
	}
	return errors.Join(errs...)
}

func (s *Service) sweepCheckpoint(ctx context.Context, n *bothy.Snapshot) error {
	unlock, err := s.ledger.LockToWork(ctx, n.SandboxID)
	if err != nil {
		return err
	}
	defer unlock()
	sb, err := s.ledger.Sandbox(ctx, n.SandboxID)
	switch {
	case bothy.ErrorCode(err) == bothy.CodeSandboxNotFound:
	case err != nil:
		return err
	case needs(sb, n.ID) || !sb.State.Ended() && slices.Contains(sb.Checkpoints, n.ID):
		return nil
	}
	return s.dropSnapshot(ctx, n.ID)
}

type replacingKey struct{}

// replacing lets a snapshot made with ctx take the place of the sandbox's checkpoints in its
// project's quota: they are deleted once it exists.
func (s *Service) replacing(ctx context.Context, sb *store.Sandbox) context.Context {
	var bytes int64
	for _, id := range sb.Checkpoints {
		if n, err := s.o.Store.Snapshot(ctx, id); err == nil {
			bytes += n.SizeBytes
		}
	}
	if bytes == 0 {
		return ctx
	}
	return context.WithValue(ctx, replacingKey{}, bytes)
}

// replaced is how many bytes a snapshot that is made with ctx takes the place of.
func replaced(ctx context.Context) int64 {
	bytes, _ := ctx.Value(replacingKey{}).(int64)
	return bytes
}
