package client

import (
	"context"
	"log/slog"

	"github.com/bothy-dev/bothy"
)

// Guest adapts a Client to bothy.Guest.
type Guest struct {
	*Client
	Log *slog.Logger
}

var _ bothy.Guest = Guest{}

// Adopt implements bothy.Guest. What of the identity cannot be set is logged.
func (g Guest) Adopt(ctx context.Context, id bothy.Identity) error {
	a, err := g.Client.Adopt(ctx, Identity{
		Key: id.Key, SandboxID: id.SandboxID, Hostname: id.Hostname, MachineID: id.MachineID, Env: id.Env,
		User: id.DefaultUser, Cwd: id.DefaultCwd, MemoryLimitBytes: id.MemoryLimitBytes,
		CABundle: id.CABundle, ResolvConf: id.ResolvConf, Entropy: id.Entropy,
	})
	if err != nil {
		return err
	}
	for _, w := range a.Warnings {
		g.Log.Warn("cannot set part of the sandbox's identity", "sandbox", id.SandboxID, "warning", w)
	}
	return nil
}

// KillLargest implements bothy.Guest.
func (g Guest) KillLargest(ctx context.Context, limit int64) (bothy.Killed, error) {
	v, err := g.Client.KillLargest(ctx, limit)
	if v == nil || err != nil {
		return bothy.Killed{}, err
	}
	return bothy.Killed{Done: true, PID: v.PID, Name: v.Name, RSSBytes: v.RSSBytes}, nil
}

// Stats implements bothy.Guest.
func (g Guest) Stats(ctx context.Context) (bothy.GuestStats, error) {
	s, err := g.Client.Stats(ctx)
	if err != nil {
		return bothy.GuestStats{}, err
	}
	return bothy.GuestStats{
		Processes: s.Processes, CPUs: s.CPUs, Commands: s.Commands, Interpreters: s.Interpreters, Uptime: s.Uptime,
		MemoryTotalBytes: s.MemoryTotalBytes, MemoryUsedBytes: s.MemoryUsedBytes,
		DiskTotalBytes: s.DiskTotalBytes, DiskUsedBytes: s.DiskUsedBytes,
	}, nil
}
