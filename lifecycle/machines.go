package lifecycle

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/keepalive"
)

// Options are what machines are connected with.
type machinesOptions struct {
	// NewGateway attaches a gateway, shut, to a cable, and NewGuest makes the host's
	// side of a guest, which is dialled by dial.
	NewGateway func(sandboxID string, c bothy.Cable) (bothy.Gateway, error)
	NewGuest   func(dial func(context.Context) (net.Conn, error), key string) bothy.Guest
	// Vault encrypts secrets. Without one, requests with secrets are refused.
	Vault Vault
	// CheckSecrets refuses what a gateway would refuse. Optional.
	CheckSecrets func([]bothy.Secret) error
	// CABundle is PEM that every sandbox trusts. Optional.
	CABundle string
	// GuestImage is the path of the image that holds the guest.
	GuestImage string
	// Patience is how long to wait for what takes an engine at full speed up to d.
	Patience func(engine string, d time.Duration) time.Duration
	Clock    bothy.Clock
	Log      *slog.Logger
	// Background ends with the service.
	Background context.Context
}

// owner is what machines ask of the service.
type owner interface {
	// Runs reports whether an instance is the one of its sandbox.
	Runs(l *live) bool
	// WhyGone says why the sandbox of an instance has ended, or nil where it lives.
	WhyGone(ctx context.Context, l *live) error
	// Killed is told of a process that was killed at the memory limit.
	Killed(ctx context.Context, l *live, process string)
	// OverLimit ends a sandbox that stayed over its memory limit.
	OverLimit(ctx context.Context, l *live, x bothy.Exit) error
}

// machines makes instances of machines, and looks after them.
type machines struct {
	o     machinesOptions
	owner owner
	kept  *keepalive.Pool
}

func newMachines(o machinesOptions, owner owner) *machines {
	return &machines{o: o, owner: owner, kept: keepalive.NewPool(o.Clock)}
}

func (s *machines) machineSpec(sb *bothy.Sandbox, t *bothy.Template) bothy.MachineSpec {
	return bothy.MachineSpec{
		ID: sb.ID, RootFS: t.RootFS, Guest: s.o.GuestImage, Hostname: hostname(sb), Limits: limitsOf(sb),
	}
}
