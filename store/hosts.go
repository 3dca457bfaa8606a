package store

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
)

// Hosts are the servers that share a store. This one has registered as one of them.
//
// Each run of a server has an epoch. A host that the others have given up changes nothing
// any more: all its calls that would fail with CodeStore.
type Hosts interface {
	// Self names this host.
	Self() string
	// Renewed is when the renewal was sent that extended the lease last, by this host's
	// clock. Lost is closed once the others have given this host up.
	Renewed() time.Time
	Lost() <-chan struct{}
	// Older reports, once Lost is closed, that it was not that: the database is older than this
	// host's lease.
	Older() bool
	// SetFigures sets what is said of this host with each renewal.
	SetFigures(f func() bothy.HostFigures)

	Hosts(ctx context.Context) ([]bothy.ClusterHost, error)
	// Peers are the hosts as they say of themselves, without Sandboxes, which to count takes
	// long where there are many, and without Processor, which is long.
	Peers(ctx context.Context) ([]bothy.ClusterHost, error)
	// Epoch is that of this run of the server. Wanted is what was wanted of this host when
	// its lease was renewed last.
	Epoch() int64
	Wanted() bothy.HostState
	// UpdateHost changes what is wanted of a host; CodeNotFound where there is none.
	UpdateHost(ctx context.Context, name string, u bothy.HostUpdate) error
	// RemoveHost forgets a dead host; CodeConflict where it lives or has sandboxes.
	RemoveHost(ctx context.Context, name string) error

	// SandboxHost finds whose a sandbox is.
	SandboxHost(ctx context.Context, id string) (Ownership, error)
	// SnapshotHost finds whose a snapshot is, by its sandbox, and which sandbox that is.
	SnapshotHost(ctx context.Context, id string) (sandbox string, o Ownership, err error)
	// ClaimSandbox makes a sandbox without a host this host's, or one that has ended and whose
	// host is dead, and reports whether it did.
	ClaimSandbox(ctx context.Context, id string) (bool, error)
	// ReleaseSandbox stores sb, which is this host's and paused at a snapshot that others have,
	// with its snapshots as one without a host.
	ReleaseSandbox(ctx context.Context, sb *Sandbox) error
	// TakeSandbox makes a sandbox this host's, with its snapshots, that another run of a
	// host gives away, and stores sb. It reports whether it did: not where the sandbox is
	// not that host's any more, or the attempt, by sb.Moving, is not the present one.
	TakeSandbox(ctx context.Context, from string, epoch int64, sb *Sandbox) (bool, error)
	// StartSandbox is PutSandbox for one that begins to count against its project's plan. With
	// those of all hosts it is within the bounds, or nothing is stored and the error is a *Beyond.
	StartSandbox(ctx context.Context, sb *Sandbox, b StartBounds) error
	// LiveOf counts the sandboxes of a project that run or start, on all hosts but this.
	LiveOf(ctx context.Context, project string) (int, error)
	// LiveByHost counts them on each host.
	LiveByHost(ctx context.Context, project string) (map[string]int, error)

	// BuryHosts gives up the hosts whose leases ran out longer ago than grace. What becomes
	// of each of their sandboxes that has not ended is decided by fate.
	BuryHosts(ctx context.Context, grace time.Duration, fate Fate) ([]Burial, error)
	// TakeDuty takes work that one host does for all, unless a host that lives has it, and
	// reports whether this one has it now. DutyHost finds who has it.
	TakeDuty(ctx context.Context, name string) (bool, error)
	DutyHost(ctx context.Context, name string) (Ownership, error)

	// Authority is the certificate of the hosts' authority and its sealed key, which is made
	// by make where there is none.
	Authority(ctx context.Context, make func() (certificate string, sealed []byte, err error)) (certificate string, sealed []byte, err error)
	// AddHostToken keeps the hash of a token for some time; UseHostToken takes it, and
	// reports whether it was there.
	AddHostToken(ctx context.Context, hash string, life time.Duration) error
	UseHostToken(ctx context.Context, hash string) (bool, error)
}

// StartBounds are what the plan of a project allows.
type StartBounds struct {
	// Sandboxes bounds those that run or start at once, on all hosts; nil is no bound.
	Sandboxes *int
	// PerMinute bounds how many start in a minute, as many of which may at once; 0 is no bound.
	PerMinute int
}

// Beyond says that one more sandbox would be beyond StartBounds.
type Beyond struct {
	// Live is how many there are. Wait is set instead where they start too fast, and says
	// when one more may.
	Live int
	Wait time.Duration
}

func (b *Beyond) Error() string { return "one more sandbox is beyond what its project may have" }

// Ownership says whose something is.
type Ownership struct {
	// Host is empty where it has none. Address is where it is reached, and Dead says that
	// it was given up, and State what is wanted of it.
	Host    string
	Address string
	Dead    bool
	// Sandbox is the state of the sandbox, where it is one.
	Sandbox bothy.State
}

// Fate decides what becomes of a sandbox whose host is lost. It changes sb. Free says that
// any host may take it then; otherwise it stays that host's, for when it comes back. Event is
// told of it, if it has a type. snapshot finds a snapshot of its.
type Fate func(sb *Sandbox, host string, snapshot func(id string) *bothy.Snapshot) (free bool, event bothy.Event)

// Burial is a host that was given up.
type Burial struct {
	Host  string
	Epoch int64
	// Freed, Kept and Ended are the sandboxes that anybody may take now, that wait for the
	// host, and that have ended.
	Freed, Kept, Ended int
	// Paused are those that ran, and are paused now.
	Paused int
}
