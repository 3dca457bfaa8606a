package lifecycle

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
)

const (
	suspensionTime = 30 * time.Second
	suspendAtOnce  = 32
)

// Suspend freezes every sandbox of this host, in use or not, until Unsuspend. Nothing is
// stored: to its owner a sandbox is running but slow to respond.
func (s *Service) Suspend() {
	s.machines.Suspend()
	s.applySuspension()
}

// Unsuspend thaws them.
func (s *Service) Unsuspend() {
	s.machines.Unsuspend()
	s.applySuspension()
}

// applySuspension freezes or thaws every machine as Suspend and Unsuspend have set.
func (s *Service) applySuspension() {
	ctx, cancel := context.WithTimeout(s.background, suspensionTime)
	defer cancel()
	s.eachInstance(func(l *instance.Instance) {
		if err := s.machines.ApplySuspension(ctx, l); err != nil {
			s.log.Error("cannot freeze or thaw a sandbox as the host's lease requires", "sandbox", l.ID, "error", err)
		}
	})
}

// Abandon destroys every machine of this host and stores nothing: other hosts own the sandboxes
// now, or they have ended.
func (s *Service) Abandon() {
	s.machines.Suspend()
	s.Drain()
	var ended atomic.Int64
	s.eachInstance(func(l *instance.Instance) {
		l.ExpectEnd()
		s.untrack(l)
		s.machines.Destroy(l.Machine)
		l.Ended()
		ended.Add(1)
	})
	s.log.Warn("ended all sandboxes here: the other hosts have given this one up", "count", ended.Load())
	s.mu.Lock()
	clear(s.unattached)
	s.mu.Unlock()
	if err := s.sweep(context.WithoutCancel(s.background)); err != nil {
		s.log.Error("cannot remove all leftover machines", "error", err)
	}
}

// endElsewhere is Abandon for one sandbox, once its locker has finished: the store says that another
// host owns it.
func (s *Service) endElsewhere(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.instances[id]
	if l == nil && s.unattached[id] == nil || s.background.Err() != nil {
		return
	}
	s.watchers.Go(func() {
		unlock, err := s.lockToEnd(s.background, id, bothy.Exit{Reason: bothy.EndHostLost, Detail: "another host owns the sandbox"})
		if err != nil {
			return
		}
		defer unlock()
		if s.instance(id) != l {
			return // it has left already
		}
		s.log.Error("another host owns a sandbox that runs here; ending it here, and storing nothing", "sandbox", id)
		if l == nil {
			if u := s.dropUnattached(id); u != nil {
				s.endUnattached(u)
			}
			return
		}
		s.untrackEnding(l)
		s.machines.Destroy(l.Machine)
		l.Ended()
	})
}

// Here reports whether a sandbox runs, or may run, on this host.
func (s *Service) Here(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.instances[id] != nil || s.unattached[id] != nil
}

// Full reports whether the host has no capacity for another sandbox.
func (s *Service) Full() bool { return s.admission.Full() }

// Tight reports whether the host could have no capacity for that many sandboxes more.
func (s *Service) Tight(more int) bool { return s.admission.Tight(more) }

// eachInstance calls f for every machine, several at once.
func (s *Service) eachInstance(f func(*instance.Instance)) {
	s.mu.Lock()
	all := make([]*instance.Instance, 0, len(s.instances))
	for _, l := range s.instances {
		all = append(all, l)
	}
	s.mu.Unlock()
	slots := make(chan struct{}, suspendAtOnce)
	var wg sync.WaitGroup
	for _, l := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(l)
		})
	}
	wg.Wait()
}
