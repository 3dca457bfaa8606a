// Package instance manages what runs for a sandbox: a machine with its gateway and its guest.
// It attaches to machines and gives them their identity, tracks their activity, freezes idle
// ones, kills processes at the memory limit, and detects guests that hang.
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

// StartTimeout limits the start of a machine, whatever the caller's patience. Like all such
// limits it is longer for emulated machines.
const StartTimeout = 60 * time.Second

// Options configure Machines.
type Options struct {
	// NewGateway attaches a gateway, which starts closed, to a network device. NewGuest creates
	// the host's side of a guest.
	NewGateway func(sandboxID string, c bothy.NetDevice) (bothy.Gateway, error)
	NewGuest   func(dial func(context.Context) (net.Conn, error), key string) bothy.Guest
	// Vault encrypts secrets. Without it, requests with secrets are refused.
	Vault Vault
	// CheckSecrets returns the error that a gateway would return. Optional.
	CheckSecrets func([]bothy.Secret) error
	// CABundle is PEM that every sandbox trusts. Optional.
	CABundle string
	// GuestImage is the path of the image with the guest.
	GuestImage string
	// Patience returns how long to wait for an operation that takes d at full speed.
	Patience func(engine string, d time.Duration) time.Duration
	Clock    bothy.Clock
	Log      *slog.Logger
	// Background ends with the service.
	Background context.Context
}

// Owner is what machines need from the service.
type Owner interface {
	// Runs reports whether an instance is its sandbox's current one.
	Runs(l *Instance) bool
	// EndedError returns why an instance's sandbox has ended, or nil if it is running.
	EndedError(ctx context.Context, l *Instance) error
	// Killed is called with each process that was killed at the memory limit.
	Killed(ctx context.Context, l *Instance, process string)
	// OverLimit ends a sandbox that stayed over its memory limit.
	OverLimit(ctx context.Context, l *Instance, x bothy.Exit) error
}

// Machines creates instances and watches over them.
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

func (s *Machines) MachineSpec(sb *store.Sandbox, t *store.Template) bothy.MachineSpec {
	return bothy.MachineSpec{
		ID: sb.ID, RootFS: t.RootFS, Guest: s.o.GuestImage, Hostname: hostname(sb), Limits: LimitsOf(sb),
	}
}
