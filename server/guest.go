package server

import (
	"context"
	"log/slog"

	"github.com/bothy-dev/bothy"
	guestclient "github.com/bothy-dev/bothy/guest/client"
)

// guest adapts the guest's client to bothy.Guest.
type guest struct {
	*guestclient.Client
	log *slog.Logger
}

var _ bothy.Guest = guest{}

func (g guest) Adopt(ctx context.Context, id bothy.Identity) error {
	a, err := g.Client.Adopt(ctx, guestclient.Identity{
		Key: id.Key, SandboxID: id.SandboxID, Hostname: id.Hostname, MachineID: id.MachineID, Env: id.Env,
		User: id.DefaultUser, Cwd: id.DefaultCwd, MemoryLimitBytes: id.MemoryLimitBytes,
		CABundle: id.CABundle, ResolvConf: id.ResolvConf, Entropy: id.Entropy,
	})
	if err != nil {
		return err
	}
	for _, w := range a.Warnings {
		g.log.Warn("cannot set part of the sandbox's identity", "sandbox", id.SandboxID, "warning", w)
	}
	return nil
}

func (g guest) KillLargest(ctx context.Context, limit int64) (bothy.Killed, error) {
	v, err := g.Client.KillLargest(ctx, limit)
	if v == nil || err != nil {
		return bothy.Killed{}, err
	}
	return bothy.Killed{Done: true, PID: v.PID, Name: v.Name, RSSBytes: v.RSSBytes}, nil
}

func (g guest) Stats(ctx context.Context) (bothy.GuestStats, error) {
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
