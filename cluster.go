package bothy

import (
	"context"
	"time"
)

// HostState says what a host of a cluster does.
type HostState string

// The states of a host. All but the last are what its operator wants of it.
const (
	// HostUp takes new sandboxes.
	HostUp HostState = "up"
	// HostCordoned takes none; those that it has run on.
	HostCordoned HostState = "cordoned"
	// HostDead did not renew its lease, and the others have given it up.
	HostDead HostState = "dead"
)

// ClusterHost is one of the servers that share a database.
type ClusterHost struct {
	Name string `json:"name"`
	// Address is where the other hosts reach it.
	Address string    `json:"address"`
	State   HostState `json:"state"`
	// Self says that it is the one that answers.
	Self bool `json:"self"`
	// Epoch counts the runs of all servers: each has one of its own.
	Epoch    int64             `json:"epoch"`
	Labels   map[string]string `json:"labels,omitempty"`
	JoinedAt time.Time         `json:"joined_at"`
	// LeaseSeconds is how much is left of its lease, less than 0 where it has run out.
	LeaseSeconds float64 `json:"lease_seconds"`
	// Sandboxes are those that it has and that have not ended.
	Sandboxes int `json:"sandboxes"`
	HostFigures
}

// HostFigures are what a host says of itself with each renewal of its lease. They are some
// seconds old.
type HostFigures struct {
	Version         string `json:"version,omitempty"`
	CPUs            int    `json:"cpus"`
	MemoryBytes     int64  `json:"memory_bytes"`
	FreeMemoryBytes int64  `json:"free_memory_bytes"`
	// Live are the sandboxes that run there, and Ready those that wait for owners.
	Live  int `json:"live"`
	Ready int `json:"ready"`
	// MaxSandboxes is how many may run there; 0 is no bound.
	MaxSandboxes int `json:"max_sandboxes"`
}

// HostInvitation lets one more host join.
type HostInvitation struct {
	// Token is good once, until ExpiresAt.
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
	// Command is what to run on the new host.
	Command string `json:"command"`
}

// HostUpdate changes what is wanted of a host.
type HostUpdate struct {
	State HostState `json:"state"`
}

// ClusterService manages the hosts of a cluster, for the operator.
type ClusterService interface {
	Hosts(ctx context.Context) ([]ClusterHost, error)
	// InviteHost makes a token with which a new host joins.
	InviteHost(ctx context.Context) (*HostInvitation, error)
	// SetHostState makes a host HostUp or HostCordoned.
	SetHostState(ctx context.Context, name string, s HostState) (*ClusterHost, error)
	// RemoveHost forgets a dead host that has no sandboxes.
	RemoveHost(ctx context.Context, name string) error
}

type elsewhereKey struct{}

// WithElsewhere says that a request that is refused here because the host is full is taken to
// another host: it need not wait.
func WithElsewhere(ctx context.Context) context.Context {
	return context.WithValue(ctx, elsewhereKey{}, true)
}

// MayGoElsewhere reports whether that was said.
func MayGoElsewhere(ctx context.Context) bool { return ctx.Value(elsewhereKey{}) != nil }
