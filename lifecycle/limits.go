package lifecycle

import (
	"context"

	"github.com/bothy-dev/bothy"
)

// Limits returns the limits of the caller's project and what is in use.
func (s *Service) Limits(ctx context.Context) (*bothy.PlanLimits, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, err
	}
	plan, err := s.admission.Plan(ctx, caller.ProjectID)
	if err != nil {
		return nil, err
	}
	p := &bothy.PlanLimits{
		Plan: plan.Name, CreatesPerMinute: plan.CreatesPerMinute,
		Sandbox: bothy.PerLimit{
			CPU: bothy.MaxCPU, MemoryMB: bothy.MaxMemoryMB, DiskMB: bothy.MaxDiskMB, TimeoutSeconds: bothy.MaxTimeoutSeconds,
			NoTimeout: plan.TimeoutSeconds == 0, Networks: plan.Networks,
		},
	}
	narrow(&p.Sandbox.CPU, plan.CPU)
	narrow(&p.Sandbox.MemoryMB, plan.MemoryMB)
	narrow(&p.Sandbox.DiskMB, plan.DiskMB)
	narrow(&p.Sandbox.TimeoutSeconds, plan.TimeoutSeconds)
	if p.Sandbox.Networks == nil {
		p.Sandbox.Networks = []bothy.NetworkMode{bothy.NetworkOff, bothy.NetworkRestricted, bothy.NetworkOpen}
	}
	p.Sandboxes.Limit = plan.Sandboxes
	if host := s.o.MaxSandboxes; host > 0 && !s.o.Cluster.Shared() && (plan.Sandboxes == nil || host < *plan.Sandboxes) {
		p.Sandboxes.Limit = &host
	}
	p.Sandboxes.Used = s.admission.RunningIn(caller.ProjectID)
	n, err := s.o.Cluster.LiveOf(ctx, caller.ProjectID)
	if err != nil {
		return nil, err
	}
	p.Sandboxes.Used += n
	quota, err := s.snapshotQuota(ctx, caller.ProjectID)
	if err != nil {
		return nil, err
	}
	if quota >>= 20; quota > 0 {
		p.Snapshots.LimitMB = &quota
	}
	_, used, err := s.o.Store.SnapshotSum(ctx, caller.ProjectID)
	if err != nil {
		return nil, err
	}
	p.Snapshots.UsedMB = used >> 20
	p.Templates.LimitMB = plan.TemplatesMB
	if s.o.TemplatesUsed != nil {
		if used, err = s.o.TemplatesUsed(caller.ProjectID); err != nil {
			return nil, err
		}
		p.Templates.UsedMB = used >> 20
	}
	p.Budget = s.o.Meter.ProjectBudget(caller.ProjectID)
	return p, nil
}

// narrow lowers a limit of the host to a plan's, if the plan has one.
func narrow[T int | float64](host *T, plan T) {
	if plan > 0 && plan < *host {
		*host = plan
	}
}

// FreeMemoryBytes is the host's available memory.
func (s *Service) FreeMemoryBytes() int64 { return int64(s.admission.FreeMemoryMB()) << 20 }
