package store

import (
	"time"

	"github.com/bothy-dev/bothy"
)

// LastSnapshot is the newest of the snapshots from which a running sandbox came about, and of
// its checkpoints, that is left of it: find returns nil for those that are not. any finds one
// whether it is left or not.
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
			// It is deleted. What is known of those before it is where the run began.
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

// PauseAfterLoss makes a sandbox that ran when its host was lost one that is paused at a
// snapshot, and that is resumed at once if it is to be.
func (s *Sandbox) PauseAfterLoss(host string, n *bothy.Snapshot, at time.Time) {
	if !n.Checkpoint && n.ID != s.SnapshotID && n.ID != s.EarlierSnapshotID {
		s.OwnSnapshotID = n.ID // no pause made it
	}
	s.State, s.SnapshotID, s.EarlierSnapshotID, s.HeadSnapshotID = bothy.StatePaused, n.ID, "", n.ID
	s.EngineState, s.ExpiresAt, s.Moving, s.Checkpoints = nil, nil, "", nil
	s.HostLoss = &bothy.HostLoss{Host: host, At: at, SnapshotID: n.ID, AgeSeconds: max(0, int(at.Sub(n.CreatedAt).Seconds()))}
	if s.OnHostLoss == bothy.HostLossResume {
		s.HostLoss.NextResumeAt = &at
	}
}

// StopResuming has a sandbox that waits to be resumed after its host was lost wait no more.
func (s *Sandbox) StopResuming() {
	if s.ResumeAt() == nil {
		return
	}
	l := *s.HostLoss
	l.NextResumeAt = nil
	s.HostLoss = &l
}

// ResumeAt is when a sandbox that lost its host is to be resumed; nil if it is not.
func (s *Sandbox) ResumeAt() *time.Time {
	if s.HostLoss == nil {
		return nil
	}
	return s.HostLoss.NextResumeAt
}
