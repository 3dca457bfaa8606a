package store

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
)

// Hosts are the servers that share a store. This server is registered as one of them.
//
// Each run of a server has an epoch, which fences it: once the other hosts have given a host
// up, all its writes fail with CodeStore.
type Hosts interface {
	// Self is this host's name.
	Self() string
	// Renewed is when the last successful renewal of the lease was sent, by this host's clock.
	// Lost is closed once the others have given this host up.
	Renewed() time.Time
	Lost() <-chan struct{}
	// Older reports, once Lost is closed, that this host was not given up but the database is
	// older than its lease.
	Older() bool
	// NotStarted records that this server ends without having served anything, and why. A host that never
	// ran is forgotten.
	NotStarted(ctx context.Context, why string) error
	// SetFigures sets the function whose figures are published with each renewal.
	SetFigures(f func() bothy.HostFigures)

	Hosts(ctx context.Context) ([]bothy.ClusterHost, error)
	// Peers is Hosts without Sandboxes, which take long to count, and without Processor, which
	// is large.
	Peers(ctx context.Context) ([]bothy.ClusterHost, error)
	// Epoch is the epoch of this run of the server. Wanted is the state wanted of this host as
	// of the last renewal.
	Epoch() int64
	Wanted() bothy.HostState
	// UpdateHost changes the wanted state of a host; CodeNotFound if there is none.
	UpdateHost(ctx context.Context, name string, u bothy.HostUpdate) error
	// RemoveHost deletes a dead host; CodeConflict if it is alive or owns sandboxes.
	RemoveHost(ctx context.Context, name string) error

	// SandboxHost returns the owner of a sandbox.
	SandboxHost(ctx context.Context, id string) (Ownership, error)
	// SnapshotHost returns the sandbox of a snapshot and that sandbox's owner.
	SnapshotHost(ctx context.Context, id string) (sandbox string, o Ownership, err error)
	// TimedSnapshot returns a snapshot. Its CreatedAt is what this host's clock would have said, by the
	// age that the snapshot has by a clock that all hosts share.
	TimedSnapshot(ctx context.Context, id string) (*bothy.Snapshot, error)
	// ClaimSandbox makes this host the owner of a sandbox that has no host, or that has ended
	// and whose host is dead. It reports whether it did.
	ClaimSandbox(ctx context.Context, id string) (bool, error)
	// ClaimDead makes this host the owner of a paused sandbox whose host is dead, in order to
	// end it. Its snapshots stay that host's. It reports whether it did.
	ClaimDead(ctx context.Context, id string) (bool, error)
	// ReleaseSandbox stores sb, which this host owns and which is paused at a snapshot that
	// others can get, as a sandbox without a host, together with its snapshots. Like PutSandbox
	// it fails with a *Conflict if the row has changed since sb was read.
	ReleaseSandbox(ctx context.Context, sb *Sandbox) error
	// TakeSandbox makes this host the owner of a sandbox, and its snapshots, that another host
	// is moving here, and stores sb. It reports false if that host at that epoch no longer owns
	// it, if sb.Moving is not the current attempt, or if the row has changed since sb was read.
	TakeSandbox(ctx context.Context, from string, epoch int64, sb *Sandbox) (bool, error)
	// StartSandbox is PutSandbox for a sandbox that starts to count against its project's plan.
	// If that would exceed the bounds over all hosts, nothing is stored and the error is a
	// *PlanExceeded.
	StartSandbox(ctx context.Context, sb *Sandbox, b StartBounds) error
	// LiveOf counts a project's running and starting sandboxes on all other hosts.
	LiveOf(ctx context.Context, project string) (int, error)
	// LiveByHost counts them on each host.
	LiveByHost(ctx context.Context, project string) (map[string]int, error)
	// TreeBudgets returns the amounts of the budgets of trees, by their roots. Other hosts may have
	// changed them.
	TreeBudgets(ctx context.Context, roots []string) (map[string]float64, error)

	// GiveUpHosts gives up the hosts whose leases expired longer ago than grace. fate decides
	// what becomes of each of their sandboxes that has not ended.
	GiveUpHosts(ctx context.Context, grace time.Duration, fate Fate) ([]HostGivenUp, error)
	// TakeDuty takes a duty, which one host does for all, unless a live host holds it, and
	// reports whether this host holds it now. DutyHost returns the holder.
	TakeDuty(ctx context.Context, name string) (bool, error)
	DutyHost(ctx context.Context, name string) (Ownership, error)

	// Authority returns the certificate of the hosts' authority and its sealed key. If there is
	// none, make creates it.
	Authority(ctx context.Context, make func() (certificate string, sealed []byte, err error)) (certificate string, sealed []byte, err error)
	// AddHostToken stores the hash of a join token for some time. UseHostToken deletes it, and
	// reports whether it existed.
	AddHostToken(ctx context.Context, hash string, life time.Duration) error
	UseHostToken(ctx context.Context, hash string) (bool, error)
}

// StartBounds are the limits of a project's plan.
type StartBounds struct {
	// Sandboxes limits running and starting sandboxes on all hosts; nil means no limit.
	Sandboxes *int
	// PerMinute limits starts per minute, all of which may come at once; 0 means no limit.
	PerMinute int
}

// PlanExceeded is the error if a start would exceed StartBounds.
type PlanExceeded struct {
	// Live is the number of sandboxes. If they start too fast, Wait is set instead, and says
	// when the next may start.
	Live int
	Wait time.Duration
}

func (b *PlanExceeded) Error() string {
	return "another sandbox would exceed the limits of its project's plan"
}

// Ownership says who owns something.
type Ownership struct {
	// Host is the owner, empty if there is none. Address is where to reach it. Dead says that
	// it was given up.
	Host    string
	Address string
	Dead    bool
	// Sandbox is the state of the sandbox, if it is one.
	Sandbox bothy.State
}

// Fate decides what becomes of a sandbox whose host is lost, and changes sb accordingly. If
// free, any host may claim it; otherwise it waits for its host. event, if it has a type, is
// recorded. snapshot finds one of its snapshots, as TimedSnapshot does.
type Fate func(sb *Sandbox, host string, snapshot func(id string) *bothy.Snapshot) (free bool, event bothy.Event)

// HostGivenUp is the result of giving up a host.
type HostGivenUp struct {
	Host  string
	Epoch int64
	// Freed, Kept and Ended count the sandboxes that any host may claim now, that wait for the
	// host, and that have ended.
	Freed, Kept, Ended int
	// Paused counts those that were running and are paused now.
	Paused int
}
