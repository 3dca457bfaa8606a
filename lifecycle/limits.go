package lifecycle

import (
	"context"

	"github.com/bothy-dev/bothy"
)

// Limits tells what the caller's project may use and what is in use. Projects
// have no plans of their own yet, so the limits are the host's.
func (s *Service) Limits(ctx context.Context) (*bothy.PlanLimits, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, err
	}
	p := &bothy.PlanLimits{
		Plan: "unlimited",
		Sandbox: bothy.PerLimit{
			CPU: bothy.MaxCPU, MemoryMB: bothy.MaxMemoryMB, DiskMB: bothy.MaxDiskMB, TimeoutSeconds: bothy.MaxTimeoutSeconds,
			Networks: []bothy.NetworkMode{bothy.NetworkOff, bothy.NetworkRestricted, bothy.NetworkOpen},
		},
	}
	if s.o.MaxSandboxes > 0 {
		p.Sandboxes.Limit = &s.o.MaxSandboxes
	}
	s.mu.Lock()
	for _, l := range s.live {
		if l.project == caller.ProjectID {
			p.Sandboxes.Used++
		}
	}
	s.mu.Unlock()
	if q := s.o.Retention.ProjectBytes >> 20; q > 0 {
		p.Snapshots.LimitMB = &q
	}
	all, err := s.o.Store.AllSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		if n.ProjectID == caller.ProjectID {
			p.Snapshots.UsedMB += n.SizeBytes
		}
	}
	p.Snapshots.UsedMB >>= 20
	return p, nil
}
