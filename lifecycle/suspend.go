package lifecycle

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy/lifecycle/instance"
)

const (
	hushTime   = 30 * time.Second
	hushAtOnce = 32
)

// Suspend freezes every sandbox of this host, in use or not, until Unsuspend. Nothing is
// stored: to its owner a sandbox runs, and answers late.
func (s *Service) Suspend() {
	s.machines.Suspend()
	s.hushAll()
}

// Unsuspend lets them go on.
func (s *Service) Unsuspend() {
	s.machines.Unsuspend()
	s.hushAll()
}

// hushAll brings every machine into the state that Suspend and Unsuspend say.
func (s *Service) hushAll() {
	ctx, cancel := context.WithTimeout(s.background, hushTime)
	defer cancel()
	s.eachInstance(func(l *instance.Instance) {
		if err := s.machines.Hush(ctx, l); err != nil {
			s.log.Error("a sandbox could not be frozen or thawed with all the others", "sandbox", l.ID, "error", err)
		}
	})
}

// Abandon ends every machine of this host and stores nothing: their sandboxes are others' by
// now, or have ended.
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
	s.log.Warn("the sandboxes of this host, which was given up, are ended", "count", ended.Load())
	s.mu.Lock()
	clear(s.unattached)
	s.mu.Unlock()
	if err := s.sweep(context.WithoutCancel(s.background)); err != nil {
		s.log.Error("not all that was left of machines could be removed", "error", err)
	}
}

// Here reports whether a sandbox runs on this host, or may.
func (s *Service) Here(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.instances[id] != nil || s.unattached[id] != nil
}

// Full reports whether the host has no room for one more sandbox now.
func (s *Service) Full() bool { return s.admission.Full() }

// eachInstance calls f for every machine, for some at once.
func (s *Service) eachInstance(f func(*instance.Instance)) {
	s.mu.Lock()
	all := make([]*instance.Instance, 0, len(s.instances))
	for _, l := range s.instances {
		all = append(all, l)
	}
	s.mu.Unlock()
	slots := make(chan struct{}, hushAtOnce)
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
