package lifecycle

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
)

const (
	// measureEvery is the interval between stored measurements.
	measureEvery = 10 * time.Second
	// measuredAtOnce limits concurrent measurements, so that a guest that does not respond
	// delays few others.
	measuredAtOnce = 8
)

// RunHistory measures every running sandbox regularly until ctx ends.
func (s *Service) RunHistory(ctx context.Context) {
	repeat(ctx, measureEvery, func() { s.MeasureAll(ctx) })
}

// MeasureAll adds a measurement to the history of every running sandbox. It neither thaws
// frozen machines nor counts as activity.
func (s *Service) MeasureAll(ctx context.Context) {
	s.mu.Lock()
	all := make([]*instance.Instance, 0, len(s.instances))
	for _, l := range s.instances {
		all = append(all, l)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	slots := make(chan struct{}, measuredAtOnce)
	for _, l := range all {
		if ctx.Err() != nil {
			break
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			// An error means that the machine is ending.
			if m, err := s.measure(ctx, l); err == nil {
				l.History.Add(*m)
			}
		})
	}
	wg.Wait()
}

// measure returns what a machine uses now.
func (s *Service) measure(ctx context.Context, l *instance.Instance) (*bothy.Metrics, error) {
	st, err := l.Machine.Stats(ctx)
	if err != nil {
		return nil, err
	}
	m := &bothy.Metrics{
		Time: s.clock.Now().UTC(), CPUCount: l.Limits.CPU, CPUSeconds: st.CPUSeconds,
		MemoryBytes: st.MemoryBytes, MemoryLimitBytes: st.MemoryLimitBytes,
		DiskLimitBytes: st.DiskLimitBytes, NetworkCounters: l.Gateway.Counters(),
	}
	if g, err := s.machines.GuestStats(ctx, l); err == nil {
		m.Processes, m.DiskBytes = g.Processes, g.DiskUsedBytes
	}
	return m, nil
}

// LatestMetrics returns what sandboxes use; see bothy.MetricsService.
func (s *Service) LatestMetrics(ctx context.Context) ([]*bothy.SandboxMetrics, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	own := make([]*instance.Instance, 0, len(s.instances))
	for _, l := range s.instances {
		if l.Project == caller.ProjectID {
			own = append(own, l)
		}
	}
	s.mu.Unlock()
	list := make([]*bothy.SandboxMetrics, 0, len(own))
	for _, l := range own {
		before, last := l.History.Latest()
		if last == nil {
			continue
		}
		m := &bothy.SandboxMetrics{SandboxID: l.ID, Metrics: *last}
		if before != nil {
			used := max(0, last.CPUSeconds-before.CPUSeconds) / max(0.001, last.Time.Sub(before.Time).Seconds())
			m.CPUUsed = &used
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *bothy.SandboxMetrics) int { return strings.Compare(a.SandboxID, b.SandboxID) })
	return list, nil
}

// MetricsHistory returns what a sandbox has used; see bothy.MetricsService.
func (s *Service) MetricsHistory(ctx context.Context, id string, from, to time.Time) ([]*bothy.Metrics, error) {
	if _, err := s.ledger.Find(ctx, id, bothy.ScopeSandboxesRead); err != nil {
		return nil, err
	}
	l := s.instance(id)
	if l == nil {
		return []*bothy.Metrics{}, nil
	}
	return l.History.Between(from, to), nil
}
