package store

import (
	"time"

	"github.com/bothy-dev/bothy"
)

// LastSnapshot returns the newest snapshot in the history of the current run, or checkpoint,
// that still exists. find returns nil for lost ones; any returns a snapshot whether lost or
// not.
func (s *Sandbox) LastSnapshot(any, find func(id string) *bothy.Snapshot) *bothy.Snapshot {
	last := s.lastBefore(any, find)
	for _, id := range s.Checkpoints {
		if n := find(id); n != nil && n.SandboxID == s.ID && (last == nil || n.CreatedAt.After(last.CreatedAt)) {
			last = n
		}
	}
	return last
}

func (s *Sandbox) lastBefore(any, find func(id string) *bothy.Snapshot) *bothy.Snapshot {
	seen := map[string]bool{}
	for id := s.HeadSnapshotID; id != "" && !seen[id]; {
		seen[id] = true
		n := any(id)
		if n == nil && s.Resumed != nil {
			// This one is deleted, and with it the link to its parent. Continue at the snapshot
			// that the run was resumed from.
			id = s.Resumed.SnapshotID
			continue
		}
		if n == nil || n.SandboxID != s.ID {
			return nil
		}
		if found := find(id); found != nil {
			return found
		}
		id = n.ParentID
	}
	return nil
}

// PauseAfterLoss turns a sandbox that was running when its host was lost into one that is
// paused at a snapshot, and due to be resumed if so configured.
func (s *Sandbox) PauseAfterLoss(host string, n *bothy.Snapshot, at time.Time) {
	if !n.Checkpoint && n.ID != s.SnapshotID && n.ID != s.EarlierSnapshotID {
		s.OwnSnapshotID = n.ID // its owner made it
	}
	s.State, s.SnapshotID, s.EarlierSnapshotID, s.HeadSnapshotID = bothy.StatePaused, n.ID, "", n.ID
	s.EngineState, s.ExpiresAt, s.Moving, s.Checkpoints = nil, nil, "", nil
	s.HostLoss = &bothy.HostLoss{Host: host, At: at, SnapshotID: n.ID, AgeSeconds: max(0, int(at.Sub(n.CreatedAt).Seconds()))}
	if s.OnHostLoss == bothy.HostLossResume {
		s.HostLoss.NextResumeAt = &at
	}
}

// StopResuming cancels the resume that is due after a host loss.
func (s *Sandbox) StopResuming() {
	if s.ResumeAt() == nil {
		return
	}
	l := *s.HostLoss
	l.NextResumeAt = nil
	s.HostLoss = &l
}

// ResumeAt is when a sandbox that lost its host is due to be resumed; nil if it is not.
func (s *Sandbox) ResumeAt() *time.Time {
	if s.HostLoss == nil {
		return nil
	}
	return s.HostLoss.NextResumeAt
}
