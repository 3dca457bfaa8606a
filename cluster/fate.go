package cluster

import (
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// FateOf decides what becomes of the sandboxes of a host that is lost. stored reports whether
// other hosts have the files of a snapshot. What was paused stays paused; what ran is paused
// at its last snapshot that others have, and otherwise has ended, and can be started again.
func FateOf(stored func(*bothy.Snapshot) bool, now func() time.Time) store.Fate {
	return func(sb *store.Sandbox, host string, snapshot func(string) *bothy.Snapshot) (bool, bothy.Event) {
		at := now().UTC()
		find := func(id string) *bothy.Snapshot {
			if id == "" {
				return nil
			}
			if n := snapshot(id); n != nil && stored(n) {
				return n
			}
			return nil
		}
		e := bothy.Event{Type: bothy.EventSandboxHostLost, Time: at, SandboxID: sb.ID, ProjectID: sb.ProjectID, Data: map[string]string{"host": host}}
		switch sb.State {
		case bothy.StatePaused, bothy.StateResuming:
			sb.State = bothy.StatePaused
			sb.EngineState = nil
			if find(sb.SnapshotID) != nil {
				e.Data["state"] = string(sb.State)
				return true, e
			}
			e.Data["detail"] = "its snapshot is on that host alone, and waits for it"
			return false, e
		case bothy.StateStopping:
			x := bothy.Exit{Reason: bothy.EndTerminated, Detail: "it was being terminated when its host was lost"}
			if sb.Ending != nil {
				x = *sb.Ending
			}
			end(sb, x, at)
			return true, ended(sb, at)
		case bothy.StateRunning, bothy.StatePausing:
			if n := lastStored(sb, snapshot, find); n != nil {
				sb.State, sb.SnapshotID, sb.EarlierSnapshotID, sb.HeadSnapshotID = bothy.StatePaused, n.ID, "", n.ID
				sb.EngineState, sb.ExpiresAt = nil, nil
				e.Data["state"], e.Data["snapshot_id"] = string(sb.State), n.ID
				e.Data["age_seconds"] = fmt.Sprint(int(at.Sub(n.CreatedAt).Seconds()))
				e.Data["detail"] = fmt.Sprintf("the host %s was lost; the sandbox is as it was at %s", host, n.CreatedAt.UTC().Format(time.RFC3339))
				return true, e
			}
		}
		end(sb, bothy.Exit{Reason: bothy.EndHostLost, Detail: fmt.Sprintf("the host %s was lost, and nobody else has a snapshot of the sandbox", host)}, at)
		return true, ended(sb, at)
	}
}

// lastStored is the newest of the snapshots from which a running sandbox came about that
// others have: the one that was taken of it last, or what that followed.
func lastStored(sb *store.Sandbox, snapshot, find func(string) *bothy.Snapshot) *bothy.Snapshot {
	seen := map[string]bool{}
	for id := sb.HeadSnapshotID; id != "" && !seen[id]; {
		seen[id] = true
		n := snapshot(id)
		if n == nil || n.SandboxID != sb.ID {
			return nil
		}
		if find(id) != nil {
			return n
		}
		id = n.ParentID
	}
	return nil
}

func end(sb *store.Sandbox, x bothy.Exit, at time.Time) {
	sb.State = bothy.StateStopped
	if x.Reason == bothy.EndHostLost || x.Reason == bothy.EndOutOfMemory || x.Reason == bothy.EndDiskFull || x.Reason == bothy.EndError {
		sb.State = bothy.StateFailed
	}
	sb.Ended = &bothy.Ended{Reason: x.Reason, Detail: x.Detail, At: at}
	sb.ExpiresAt, sb.Ending, sb.EngineState, sb.GuestKey = nil, nil, nil, ""
}

func ended(sb *store.Sandbox, at time.Time) bothy.Event {
	return bothy.Event{Type: bothy.EventSandboxEnded, Time: at, SandboxID: sb.ID, ProjectID: sb.ProjectID,
		Data: map[string]string{"reason": string(sb.Ended.Reason), "detail": sb.Ended.Detail}}
}
