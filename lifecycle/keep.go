package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
)

// waitForStore is how long a response waits for the upload of a snapshot. Clients' timeouts are
// a little longer.
const waitForStore = 4 * time.Minute

// keep uploads a snapshot to the object storage in the background, if there is one.
func (s *Service) keep(id string) {
	if s.remote != nil {
		s.remote.Keep(id)
	}
}

// SnapshotStored records that a snapshot is in the object storage.
func (s *Service) SnapshotStored(ctx context.Context, id string) {
	n, changed, err := s.o.Store.SetSnapshotDurable(ctx, id, bothy.DurableStore)
	if bothy.ErrorCode(err) == bothy.CodeSnapshotNotFound {
		return // deleted meanwhile, maybe on another host
	}
	if err != nil {
		s.log.Warn("cannot record that a snapshot is in the object storage; the next start will", "snapshot", id, "error", err)
	} else if changed {
		s.checkpointStored(n)
		if n.Checkpoint {
			return // no event: there are too many
		}
		s.ledger.EmitFor(ctx, bothy.EventSnapshotStored, n.SandboxID, n.ProjectID, map[string]string{"snapshot_id": id, "durable": string(n.Durable)})
	}
}

// checkWait returns an error if the requested durability cannot be reached.
func (s *Service) checkWait(wait bothy.Durable) error {
	switch {
	case wait == "" || wait == bothy.DurableHost:
		return nil
	case wait != bothy.DurableStore:
		return invalid("wait is %q", wait).WithHint("Give store or host.")
	case s.remote == nil:
		return bothy.Errorf(bothy.CodeUnsupported, "this server has no object storage to wait for: snapshots stay on the host's disk").
			WithHint("Omit wait, or ask the operator to configure object storage with the setting blobs.")
	}
	return nil
}

// waitStored waits for the upload of a new snapshot if requested. The snapshot exists in any
// case, and says how durable it is.
func (s *Service) waitStored(ctx context.Context, n *bothy.Snapshot, wait bothy.Durable) *bothy.Snapshot {
	if wait != bothy.DurableStore {
		return n
	}
	wctx, cancel := context.WithTimeout(ctx, waitForStore)
	defer cancel()
	if err := s.remote.WaitKept(wctx, n.ID); err != nil {
		s.log.Warn("a snapshot was not uploaded to the object storage in time for the response", "snapshot", n.ID, "error", err)
		return n
	}
	ctx = context.WithoutCancel(ctx)
	s.SnapshotStored(ctx, n.ID)
	if now, err := s.o.Store.Snapshot(ctx, n.ID); err == nil {
		return now
	}
	return n
}

// keepSnapshots resumes the previous server's uploads to the object storage. The records are
// the truth: none is deleted because its files are not found.
func (s *Service) keepSnapshots(ctx context.Context) error {
	local, err := s.o.Blobs.List(ctx)
	if err != nil {
		return err
	}
	var own map[string]bool // this host's sandboxes; nil without a cluster
	if s.o.Cluster.Shared() {
		if own, err = s.ownSandboxes(ctx); err != nil {
			return err
		}
	}
	for _, id := range local {
		if !s.remote.Local(id) {
			continue
		}
		if _, err := s.o.Store.Snapshot(ctx, id); bothy.ErrorCode(err) != bothy.CodeSnapshotNotFound {
			continue
		}
		if own != nil {
			if err := s.notListed(ctx, id, own); err != nil {
				s.log.Warn("a snapshot on disk belongs to no sandbox of this host", "snapshot", id, "error", err)
			}
			continue
		}
		if err := s.listSnapshot(ctx, id); err != nil {
			s.log.Warn("a snapshot on disk has no record", "snapshot", id, "error", err)
		}
	}
	all, err := s.o.Store.AllSnapshots(ctx)
	if err != nil {
		return err
	}
	for _, n := range all {
		here := s.remote.Local(n.ID)
		switch {
		case n.Durable == bothy.DurableStore && (!here || s.remote.Kept(n.ID)):
		case here || s.remote.Kept(n.ID):
			s.remote.Keep(n.ID)
		case own == nil || own[n.SandboxID]:
			s.log.Warn("the files of a snapshot are not on this host", "snapshot", n.ID, "sandbox", n.SandboxID)
		}
	}
	return nil
}

// ownSandboxes returns this host's sandboxes that have not ended.
func (s *Service) ownSandboxes(ctx context.Context) (map[string]bool, error) {
	all, err := s.o.Store.OwnSandboxesInState(ctx, bothy.StateStarting, bothy.StateRunning, bothy.StatePausing, bothy.StatePaused, bothy.StateResuming, bothy.StateStopping)
	own := map[string]bool{}
	for _, sb := range all {
		own[sb.ID] = true
	}
	return own, err
}

// notListed handles a snapshot on this host's disk without a record in a cluster, where another
// host may have deleted the record. If it was uploaded, it once had one: it is not listed
// again, and is deleted after the grace time. Otherwise it is listed.
func (s *Service) notListed(ctx context.Context, id string, own map[string]bool) error {
	if s.remote.Kept(id) {
		return nil
	}
	_, m, release, err := s.openSnapshot(ctx, id)
	if err != nil {
		return err
	}
	release()
	if !own[m.SandboxID] {
		return fmt.Errorf("sandbox %s is not this host's", m.SandboxID)
	}
	return s.listSnapshot(ctx, id)
}
