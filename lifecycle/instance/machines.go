// Package instance answers what runs for a sandbox: a machine with its gateway and its
// guest. It connects to machines and gives them their identity, knows whether they are in
// use, freezes idle ones, kills at the memory limit, and notices guests that hang.
package instance

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/keepalive"
	"github.com/bothy-dev/bothy/store"
)

// StartTimeout bounds the start of one machine, whatever the caller's patience. It and
// all that bounds a machine is longer for emulated ones.
const StartTimeout = 60 * time.Second

// Options are what machines are connected with.
type Options struct {
	// NewGateway attaches a gateway, shut, to a network device, and NewGuest makes the host's
	// side of a guest, which is dialled by dial.
	NewGateway func(sandboxID string, c bothy.NetDevice) (bothy.Gateway, error)
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

// Owner is what machines ask of the service.
type Owner interface {
	// Runs reports whether an instance is the one of its sandbox.
	Runs(l *Instance) bool
	// WhyGone says why the sandbox of an instance has ended, or nil where it lives.
	WhyGone(ctx context.Context, l *Instance) error
	// Killed is told of a process that was killed at the memory limit.
	Killed(ctx context.Context, l *Instance, process string)
	// OverLimit ends a sandbox that stayed over its memory limit.
	OverLimit(ctx context.Context, l *Instance, x bothy.Exit) error
}

// Machines makes instances of machines, and looks after them.
type Machines struct {
	o     Options
	owner Owner
	kept  *keepalive.Pool
	// suspended is set while no machine may run.
	suspended atomic.Bool
}

func New(o Options, owner Owner) *Machines {
	return &Machines{o: o, owner: owner, kept: keepalive.NewPool(o.Clock)}
}

func (s *Machines) MachineSpec(sb *store.Sandbox, t *bothy.Template) bothy.MachineSpec {
	return bothy.MachineSpec{
		ID: sb.ID, RootFS: t.RootFS, Guest: s.o.GuestImage, Hostname: hostname(sb), Limits: LimitsOf(sb),
	}
}
