package lifecycle

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Cluster is what the service asks about the hosts that share its store. What is not described here is as
// in store.Hosts.
type Cluster interface {
	// Shared reports whether other hosts share the store, or may.
	Shared() bool
	// Labels are this host's.
	Labels() map[string]string
	// Await waits until this host may act for its sandboxes, or returns an error if it never may
	// again, because the other hosts have given it up.
	Await(ctx context.Context) error
	// NoHost returns the error for memory that no host of the cluster can restore; nil if then only
	// the files are restored.
	NoHost(ctx context.Context, snapshotID string, needs bothy.MemoryNeeds) error

	Self() string
	SandboxHost(ctx context.Context, id string) (store.Ownership, error)
	ClaimSandbox(ctx context.Context, id string) (bool, error)
	ClaimDead(ctx context.Context, id string) (bool, error)
	ReleaseSandbox(ctx context.Context, sb *store.Sandbox) error
	StartSandbox(ctx context.Context, sb *store.Sandbox, b store.StartBounds) error
	LiveOf(ctx context.Context, project string) (int, error)
	// TreeBudgets returns nil if no other host may have changed them.
	TreeBudgets(ctx context.Context, roots []string) (map[string]float64, error)
	TimedSnapshot(ctx context.Context, id string) (*bothy.Snapshot, error)
}

// Alone is the Cluster of a host that shares its store with no other.
type Alone struct{ Store store.Store }

func (Alone) Shared() bool                                                     { return false }
func (Alone) Labels() map[string]string                                        { return nil }
func (Alone) Await(context.Context) error                                      { return nil }
func (Alone) NoHost(context.Context, string, bothy.MemoryNeeds) error          { return nil }
func (Alone) Self() string                                                     { return "" }
func (Alone) SandboxHost(context.Context, string) (o store.Ownership, _ error) { return o, nil }
func (Alone) ClaimSandbox(context.Context, string) (bool, error)               { return true, nil }
func (Alone) ClaimDead(context.Context, string) (bool, error)                  { return false, nil }
func (Alone) LiveOf(context.Context, string) (int, error)                      { return 0, nil }

func (a Alone) ReleaseSandbox(ctx context.Context, sb *store.Sandbox) error {
	return a.Store.PutSandbox(ctx, sb)
}

func (a Alone) StartSandbox(ctx context.Context, sb *store.Sandbox, _ store.StartBounds) error {
	return a.Store.PutSandbox(ctx, sb)
}

func (Alone) TreeBudgets(context.Context, []string) (map[string]float64, error) { return nil, nil }

func (a Alone) TimedSnapshot(ctx context.Context, id string) (*bothy.Snapshot, error) {
	return a.Store.Snapshot(ctx, id)
}
