package cluster

import (
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// FateOf decides what becomes of the sandboxes of a lost host. stored reports whether other
// hosts can get the files of a snapshot. A paused sandbox stays paused. A running one is paused
// at its newest snapshot that other hosts can get, and may be resumed from it; without one it
// has ended.
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
			if sb.State == bothy.StateResuming && sb.OnHostLoss == bothy.HostLossResume && sb.ResumeAt() == nil {
				// A resuming sandbox was about to run.
				if n := find(sb.SnapshotID); n != nil {
					sb.PauseAfterLoss(host, n, at)
				}
			}
			sb.State = bothy.StatePaused
			sb.EngineState = nil
			if find(sb.SnapshotID) != nil {
				e.Data["state"] = string(sb.State)
				return true, e
			}
			e.Data["detail"] = "its snapshot is only on that host; the sandbox stays paused until the host is back"
			return false, e
		case bothy.StateStopping:
			x := bothy.Exit{Reason: bothy.EndTerminated, Detail: "it was being terminated when its host was lost"}
			if sb.Ending != nil {
				x = *sb.Ending
			}
			end(sb, x, at)
			return true, ended(sb, at)
		case bothy.StateRunning, bothy.StatePausing:
			if sb.OnHostLoss == bothy.HostLossFail {
				end(sb, bothy.Exit{Reason: bothy.EndHostLost, Detail: fmt.Sprintf("the host %s was lost, and on_host_loss is fail", host)}, at)
				return true, ended(sb, at)
			}
			if n := sb.LastSnapshot(snapshot, find); n != nil {
				sb.PauseAfterLoss(host, n, at)
				e.Data["state"], e.Data["snapshot_id"], e.Data["on_host_loss"] = string(sb.State), n.ID, string(sb.OnHostLoss)
				e.Data["age_seconds"] = fmt.Sprint(sb.HostLoss.AgeSeconds)
				e.Data["detail"] = fmt.Sprintf("the host %s was lost; the sandbox is as it was at %s", host, n.CreatedAt.UTC().Format(time.RFC3339))
				return true, e
			}
		}
		end(sb, bothy.Exit{Reason: bothy.EndHostLost, Detail: fmt.Sprintf("the host %s was lost, and no other host has a snapshot of the sandbox", host)}, at)
		return true, ended(sb, at)
	}
}

func end(sb *store.Sandbox, x bothy.Exit, at time.Time) {
	sb.State = bothy.StateStopped
	if x.Reason == bothy.EndHostLost || x.Reason == bothy.EndOutOfMemory || x.Reason == bothy.EndDiskFull || x.Reason == bothy.EndError {
		sb.State = bothy.StateFailed
	}
	sb.Ended = &bothy.Ended{Reason: x.Reason, Detail: x.Detail, At: at}
	sb.ExpiresAt, sb.Ending, sb.EngineState, sb.GuestKey = nil, nil, nil, ""
	sb.StopResuming()
}

func ended(sb *store.Sandbox, at time.Time) bothy.Event {
	return bothy.Event{Type: bothy.EventSandboxEnded, Time: at, SandboxID: sb.ID, ProjectID: sb.ProjectID,
		Data: map[string]string{"reason": string(sb.Ended.Reason), "detail": sb.Ended.Detail}}
}
