package lifecycle

import (
	"context"
	"errors"

	"github.com/bothy-dev/bothy/internal/failpoint"
)

// dropPauseSnapshot deletes a snapshot that a pause made and that nobody gave a name:
// the sandbox has a later one.
func (s *Service) dropPauseSnapshot(ctx context.Context, id string) {
	if id == "" {
		return
	}
	n, err := s.o.Store.Snapshot(ctx, id)
	if err != nil || n.Name != "" {
		return
	}
	if err := s.dropSnapshot(ctx, id); err != nil {
		s.log.Warn("cannot delete an old snapshot", "snapshot", id, "error", err)
	}
}

// dropSnapshot deletes a snapshot's files and then its entry in the list. A server
// that is killed in between finds out that the files are gone when it is back.
func (s *Service) dropSnapshot(ctx context.Context, id string) error {
	s.warm.Forget(id)
	n, unlisted := s.o.Store.Snapshot(ctx, id)
	removed := s.o.Blobs.Remove(ctx, id)
	if removed != nil {
		if _, release, err := s.o.Blobs.Open(ctx, id); err == nil {
			release()
			return removed // it is as it was
		}
	}
	if err := failpoint.Hit("lifecycle.removed"); err != nil {
		return err
	}
	err := s.o.Store.DeleteSnapshot(ctx, id)
	if err == nil && unlisted == nil {
		s.o.Meter.SnapshotDeleted(ctx, n)
	}
	return errors.Join(removed, err)
}
