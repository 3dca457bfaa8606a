package bothy

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
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
	// HostDraining takes none, and gives those that it has to other hosts.
	HostDraining HostState = "draining"
	// HostDead did not renew its lease, and the others have given it up.
	HostDead HostState = "dead"
)

// ClusterHost is one of the servers that share a database.
type ClusterHost struct {
	Name string `json:"name"`
	// Address is where the other hosts reach it.
	Address string    `json:"address"`
	State   HostState `json:"state"`
	// Self is set for the host that answers.
	Self bool `json:"self"`
	// Epoch counts the runs of all servers: each has one of its own.
	Epoch    int64             `json:"epoch"`
	Labels   map[string]string `json:"labels,omitempty"`
	JoinedAt time.Time         `json:"joined_at"`
	// LeaseSeconds is what is left of its lease; negative if it has run out.
	LeaseSeconds float64 `json:"lease_seconds"`
	// Sandboxes are those that it has and that have not ended.
	Sandboxes int `json:"sandboxes"`
	// Processor is the host's. ProcessorProblem says what other hosts' sandboxes may use that it
	// has not.
	Processor        *HostProcessor `json:"processor,omitempty"`
	ProcessorProblem string         `json:"processor_problem,omitempty"`
	HostFigures
}

// HostProcessor is the processor of a host, and what sandboxes see of it.
type HostProcessor struct {
	Processor
	// CPULevel is what new sandboxes of the host see: host, or a level.
	CPULevel string `json:"cpu_level"`
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
	// Load is how many threads want a processor, by the host's average of a minute, for each
	// processor that it has.
	Load float64 `json:"load"`
	// Templates are the beginnings of the digests of the images that are on the host, unless
	// there are too many to tell; see HostTemplate.
	Templates []string `json:"templates,omitempty"`
	// Builds are the engine builds whose memory the host can wake, as far as is known: an engine
	// that is not open yet tells nothing.
	Builds []string `json:"builds,omitempty"`
	// MoveProblem is why a sandbox that is to leave the host could not yet.
	MoveProblem string `json:"move_problem,omitempty"`
	// StartProblem is why the last start of the host's server failed.
	StartProblem string `json:"start_problem,omitempty"`
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
	// UntilRestart ends a drain when the server of the host is restarted.
	UntilRestart bool `json:"until_restart,omitempty"`
}

// SandboxMove asks for a sandbox to be moved to another host: Host, or the one that has
// the least to do where that is empty.
type SandboxMove struct {
	Host string `json:"host,omitempty"`
}

// MovedSandbox says how a sandbox was moved.
type MovedSandbox struct {
	SandboxID string `json:"sandbox_id"`
	From      string `json:"from"`
	To        string `json:"to"`
	// StillMS is for how many milliseconds a running sandbox was frozen.
	StillMS int64 `json:"still_ms"`
}

// ClusterService manages the hosts of a cluster, for the operator.
type ClusterService interface {
	Hosts(ctx context.Context) ([]ClusterHost, error)
	// InviteHost makes a token with which a new host joins.
	InviteHost(ctx context.Context) (*HostInvitation, error)
	// UpdateHost makes a host HostUp, HostCordoned or HostDraining.
	UpdateHost(ctx context.Context, name string, u HostUpdate) (*ClusterHost, error)
	// RemoveHost forgets a dead host that has no sandboxes.
	RemoveHost(ctx context.Context, name string) error
	// MoveSandbox moves a sandbox of any project, running or paused, to another host. Where
	// that fails the sandbox stays where it is, as it was.
	MoveSandbox(ctx context.Context, id string, m SandboxMove) (*MovedSandbox, error)
}

// maxHostTemplates is how many templates a host reports, and hostTemplate how much of each.
const (
	maxHostTemplates = 64
	hostTemplate     = 12
)

// HostTemplate is how HostFigures.Templates name the image of a digest.
func HostTemplate(digest string) string {
	_, hex, _ := strings.Cut(digest, ":")
	return hex[:min(len(hex), hostTemplate)]
}

// HostTemplates are the images of some digests, for HostFigures.Templates.
func HostTemplates(digests []string) (names []string) {
	for _, d := range digests {
		names = append(names, HostTemplate(d))
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > maxHostTemplates {
		return nil
	}
	return names
}

type elsewhereKey struct{}

// elsewhere is what becomes of a request that may go to another host.
type elsewhere struct{ left atomic.Bool }

// WithElsewhere says that a request that is refused here because the host is full is taken to
// another host: it need not wait.
func WithElsewhere(ctx context.Context) context.Context {
	return context.WithValue(ctx, elsewhereKey{}, &elsewhere{})
}

// WithElsewhereOf says of ctx what was said of the request that it works for.
func WithElsewhereOf(ctx, request context.Context) context.Context {
	if e := request.Value(elsewhereKey{}); e != nil {
		return context.WithValue(ctx, elsewhereKey{}, e)
	}
	return ctx
}

// MayGoElsewhere reports whether that was said.
func MayGoElsewhere(ctx context.Context) bool { return ctx.Value(elsewhereKey{}) != nil }

// LeaveToOthers notes how an attempt to do what was asked ended: with an error before anything
// was done, for a reason that another host need not have, or otherwise.
func LeaveToOthers(ctx context.Context, err error) {
	e, ok := ctx.Value(elsewhereKey{}).(*elsewhere)
	if !ok {
		return
	}
	code := ErrorCode(err)
	e.left.Store(code == CodeCapacity || code == CodeShuttingDown || code == CodeTemplateNotFound)
}

// LeftToOthers reports whether that was noted.
func LeftToOthers(ctx context.Context) bool {
	e, ok := ctx.Value(elsewhereKey{}).(*elsewhere)
	return ok && e.left.Load()
}

// Host describes the machine that a server runs on, and how the server uses it.
type Host struct {
	Version string `json:"version"`
	CPUs    int    `json:"cpus"`
	// MemoryBytes and DiskBytes are totals; the Free ones are what is left.
	MemoryBytes     int64 `json:"memory_bytes"`
	FreeMemoryBytes int64 `json:"free_memory_bytes"`
	DiskBytes       int64 `json:"disk_bytes"`
	FreeDiskBytes   int64 `json:"free_disk_bytes"`
	// Sandboxes are those of all projects that have not ended, by state.
	Sandboxes map[string]int `json:"sandboxes"`
	// MaxSandboxes is how many there may be; nil is any number.
	MaxSandboxes *int           `json:"max_sandboxes"`
	Pool         HostPool       `json:"pool"`
	Engines      []HostEngine   `json:"engines"`
	Creations    []HostCreation `json:"creations"`
	// Findings are what is worth knowing about the host and the server, each found out
	// by trying it.
	Findings []HostFinding `json:"findings"`
}

// HostPool is what is kept ready so that sandboxes start fast.
type HostPool struct {
	Ready       int   `json:"ready"`
	MemoryBytes int64 `json:"memory_bytes"`
	Spares      int   `json:"spares"`
	Golden      int   `json:"golden"`
	GoldenBytes int64 `json:"golden_bytes"`
	// Contents is what is kept ready of each kind.
	Contents []HostPoolItem `json:"contents"`
}

// HostPoolItem is one kind of sandbox that is held ready.
type HostPoolItem struct {
	Template string `json:"template"`
	Engine   string `json:"engine"`
	CPUs     int    `json:"cpus"`
	MemoryMB int    `json:"memory_mb"`
	DiskMB   int    `json:"disk_mb"`
	// Ready counts those that are not handed out yet.
	Ready int `json:"ready"`
	// GoldenBytes is the size of the snapshot that they are made from; 0 if there
	// is none.
	GoldenBytes int64 `json:"golden_bytes"`
}

// HostEngine is an engine of the server. One that is not open yet is opened when a
// sandbox first needs it, and has nothing to tell before.
type HostEngine struct {
	Name         string       `json:"name"`
	Open         bool         `json:"open"`
	Build        string       `json:"build,omitempty"`
	Kernel       string       `json:"kernel,omitempty"`
	Snapshots    bool         `json:"snapshots"`
	Acceleration Acceleration `json:"acceleration,omitempty"`
}

// HostCreation is one column of a histogram: how many requests to create a sandbox took
// at most so long, and longer than the column before.
type HostCreation struct {
	// UpToSeconds is nil for the last column, which has no end.
	UpToSeconds *float64 `json:"up_to_seconds"`
	Count       int64    `json:"count"`
}

// HostFinding is the outcome of one check of the host.
type HostFinding struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// HostService tells the operator about the host.
type HostService interface {
	Host(ctx context.Context) (*Host, error)
}
