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
		f := fate{sb: sb, host: host, at: now().UTC(), snapshot: snapshot}
		f.stored = func(id string) *bothy.Snapshot {
			if id == "" {
				return nil
			}
			if n := snapshot(id); n != nil && stored(n) {
				return n
			}
			return nil
		}
		return f.decide()
	}
}

// fate decides about one sandbox.
type fate struct {
	sb   *store.Sandbox
	host string
	at   time.Time
	// snapshot finds a snapshot, and stored one whose files other hosts can get.
	snapshot, stored func(id string) *bothy.Snapshot
}

func (f fate) decide() (free bool, e bothy.Event) {
	sb := f.sb
	switch sb.State {
	case bothy.StatePaused, bothy.StateResuming:
		return f.stayPaused()
	case bothy.StateStopping:
		if sb.Ending != nil {
			return f.end(*sb.Ending)
		}
		return f.end(bothy.Exit{Reason: bothy.EndTerminated, Detail: "it was being terminated when its host was lost"})
	case bothy.StateRunning, bothy.StatePausing:
		if sb.OnHostLoss == bothy.HostLossFail {
			return f.end(bothy.Exit{Reason: bothy.EndHostLost, Detail: fmt.Sprintf("the host %s was lost, and on_host_loss is fail", f.host)})
		}
		if n := sb.LastSnapshot(f.snapshot, f.stored); n != nil {
			return f.pause(n)
		}
	}
	return f.end(bothy.Exit{Reason: bothy.EndHostLost, Detail: fmt.Sprintf("the host %s was lost, and no other host has a snapshot of the sandbox", f.host)})
}

// stayPaused keeps a sandbox paused: any host may resume it, or only the lost one.
func (f fate) stayPaused() (free bool, e bothy.Event) {
	sb, n := f.sb, f.stored(f.sb.SnapshotID)
	if n != nil && sb.State == bothy.StateResuming && sb.OnHostLoss == bothy.HostLossResume && sb.ResumeAt() == nil {
		sb.PauseAfterLoss(f.host, n, f.at) // a resuming sandbox was about to run
	}
	sb.State, sb.EngineState = bothy.StatePaused, nil
	if n == nil {
		return false, f.event(bothy.EventSandboxHostLost, map[string]string{"host": f.host, "detail": "its snapshot is only on that host; the sandbox stays paused until the host is back"})
	}
	return true, f.event(bothy.EventSandboxHostLost, map[string]string{"host": f.host, "state": string(sb.State)})
}

// pause pauses a sandbox that ran, at a snapshot.
func (f fate) pause(n *bothy.Snapshot) (free bool, e bothy.Event) {
	sb := f.sb
	sb.PauseAfterLoss(f.host, n, f.at)
	return true, f.event(bothy.EventSandboxHostLost, map[string]string{
		"host": f.host, "state": string(sb.State), "snapshot_id": n.ID, "on_host_loss": string(sb.OnHostLoss), "age_seconds": fmt.Sprint(sb.HostLoss.AgeSeconds),
		"detail": fmt.Sprintf("the host %s was lost; the sandbox is as it was at %s", f.host, n.CreatedAt.UTC().Format(time.RFC3339)),
	})
}

func (f fate) end(x bothy.Exit) (free bool, e bothy.Event) {
	sb := f.sb
	sb.State = bothy.StateStopped
	if x.Reason == bothy.EndHostLost || x.Reason == bothy.EndOutOfMemory || x.Reason == bothy.EndDiskFull || x.Reason == bothy.EndError {
		sb.State = bothy.StateFailed
	}
	sb.Ended = &bothy.Ended{Reason: x.Reason, Detail: x.Detail, At: f.at}
	sb.ExpiresAt, sb.Ending, sb.EngineState, sb.GuestKey = nil, nil, nil, ""
	sb.StopResuming()
	return true, f.event(bothy.EventSandboxEnded, map[string]string{"reason": string(x.Reason), "detail": x.Detail})
}

func (f fate) event(kind string, data map[string]string) bothy.Event {
	return bothy.Event{Type: kind, Time: f.at, SandboxID: f.sb.ID, ProjectID: f.sb.ProjectID, Data: data}
}
