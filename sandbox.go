package bothy

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// State is the state of a sandbox.
type State string

// The states of a sandbox.
const (
	StateStarting State = "starting"
	StateRunning  State = "running"
	StatePausing  State = "pausing"
	StatePaused   State = "paused"
	StateResuming State = "resuming"
	StateStopping State = "stopping"
	StateStopped  State = "stopped"
	StateFailed   State = "failed"
)

// LiveStates are those of sandboxes that have not reached the end of their life.
var LiveStates = []State{StateStarting, StateRunning, StatePausing, StatePaused, StateResuming, StateStopping}

// Ended reports whether the sandbox has reached the end of its life.
func (s State) Ended() bool { return s == StateStopped || s == StateFailed }

// EndReason says why a sandbox ended.
type EndReason string

// The reasons for which a sandbox ends.
const (
	EndTerminated  EndReason = "terminated"
	EndTimeout     EndReason = "timeout"
	EndOutOfMemory EndReason = "out_of_memory"
	EndDiskFull    EndReason = "disk_full"
	EndExited      EndReason = "exited"
	EndHostRestart EndReason = "host_restart"
	EndHostLost    EndReason = "host_lost"
	EndError       EndReason = "error"
)

// Ended is the death certificate of a sandbox.
type Ended struct {
	Reason EndReason `json:"reason"`
	Detail string    `json:"detail"`
	At     time.Time `json:"at"`
}

// Resumed says what a resume brought back.
type Resumed struct {
	SnapshotID string `json:"snapshot_id"`
	// Kind is "memory" if everything continued where it was, and "files" if the
	// processes are gone; Detail says why.
	Kind   SnapshotKind `json:"kind"`
	Detail string       `json:"detail,omitempty"`
	At     time.Time    `json:"at"`
}

// HealthStatus says in a word what is wrong with a sandbox that runs.
type HealthStatus string

// What can be wrong with a sandbox that runs. EndReason has the words for one that ended.
const (
	HealthOutOfMemory   HealthStatus = "out_of_memory"
	HealthDiskFull      HealthStatus = "disk_full"
	HealthManyProcesses HealthStatus = "too_many_processes"
	HealthNoShell       HealthStatus = "no_shell"
	HealthNoUser        HealthStatus = "no_such_user"
	HealthNoCwd         HealthStatus = "no_working_directory"
)

// HealthStatuses are all of them.
var HealthStatuses = []HealthStatus{HealthOutOfMemory, HealthDiskFull, HealthManyProcesses, HealthNoShell, HealthNoUser, HealthNoCwd}

// Health is what the last command met that was wrong with the sandbox itself.
type Health struct {
	Status HealthStatus `json:"status"`
	// Detail and Hint are those that the command's caller was given.
	Detail string    `json:"detail"`
	Hint   string    `json:"hint,omitempty"`
	At     time.Time `json:"at"`
}

// OnTimeout says what happens to a sandbox when its time is up.
type OnTimeout string

// The things that can happen at a time-out.
const (
	TimeoutTerminate OnTimeout = "terminate"
	TimeoutPause     OnTimeout = "pause"
)

// OnHostLoss says what becomes of a sandbox that runs when its host is lost.
type OnHostLoss string

// The things that can become of it.
const (
	// HostLossPause has it paused at its last snapshot that is not lost as well.
	HostLossPause OnHostLoss = "pause"
	// HostLossResume has another host resume it from that at once.
	HostLossResume OnHostLoss = "resume"
	// HostLossFail has it end.
	HostLossFail OnHostLoss = "fail"
)

// HostLoss describes the last time that a sandbox which ran lost its host, and was paused.
type HostLoss struct {
	// Host is empty for a server that is alone.
	Host string    `json:"host,omitempty"`
	At   time.Time `json:"at"`
	// SnapshotID is the snapshot that it was paused at, and AgeSeconds how old that was.
	SnapshotID string `json:"snapshot_id"`
	AgeSeconds int    `json:"age_seconds"`
	// ResumeAttempts counts the attempts to resume it that failed, and Problem says why the
	// last one did. NextResumeAt is when the next is made; nil when none is.
	ResumeAttempts int        `json:"resume_attempts,omitempty"`
	NextResumeAt   *time.Time `json:"next_resume_at,omitempty"`
	Problem        string     `json:"problem,omitempty"`
}

// Defaults and bounds of a new sandbox.
const (
	DefaultTemplate       = "python-3.12"
	DefaultCPU            = 1.0
	DefaultMemoryMB       = 512
	DefaultDiskMB         = 2048
	DefaultTimeoutSeconds = 600
	MinCPU                = 0.1
	MaxCPU                = 4.0
	MinMemoryMB           = 64
	MaxMemoryMB           = 8192
	MinDiskMB             = 64
	MaxDiskMB             = 65536
	MaxTimeoutSeconds     = 30 * 24 * 3600
	MinCheckpointSeconds  = 10
	MaxCheckpointSeconds  = 24 * 3600
	// MaxProcesses bounds the processes and threads inside one sandbox.
	MaxProcesses = 2048
	// ProcessesPerMB keeps processes that do nothing, of a quarter of a megabyte or
	// more each, from filling a sandbox's memory: a fork bomb then ends at the limit
	// that it is about.
	ProcessesPerMB = 2
)

// ProcessesFor is how many processes and threads a sandbox with so much memory may have.
func ProcessesFor(memoryMB int) int { return min(MaxProcesses, ProcessesPerMB*memoryMB) }

// Size is a named choice of CPU, memory and disk.
type Size struct {
	CPU      float64
	MemoryMB int
	DiskMB   int
}

// Sizes are the names that a create request may use instead of numbers.
var Sizes = map[string]Size{
	"small":  {CPU: 1, MemoryMB: 512, DiskMB: 2048},
	"medium": {CPU: 2, MemoryMB: 2048, DiskMB: 8192},
	"large":  {CPU: 4, MemoryMB: 8192, DiskMB: 16384},
}

// Sandbox is one disposable Linux machine.
type Sandbox struct {
	ID       string `json:"id"`
	Name     string `json:"name,omitempty"`
	State    State  `json:"state"`
	Template string `json:"template"`
	Engine   string `json:"engine"`
	// Acceleration is what runs its virtual machine, if it is one, and Kernel
	// what its kernel calls itself; of the last run. Empty before the first.
	Acceleration   Acceleration `json:"acceleration,omitempty"`
	Kernel         string       `json:"kernel,omitempty"`
	CPU            float64      `json:"cpu"`
	MemoryMB       int          `json:"memory_mb"`
	DiskMB         int          `json:"disk_mb"`
	Network        Network      `json:"network"`
	CreatedAt      time.Time    `json:"created_at"`
	StartedAt      *time.Time   `json:"started_at,omitempty"`
	ExpiresAt      *time.Time   `json:"expires_at,omitempty"`
	TimeoutSeconds int          `json:"timeout_seconds"`
	OnTimeout      OnTimeout    `json:"on_timeout"`
	IdleSeconds    int          `json:"idle_seconds,omitempty"`
	AutoResume     bool         `json:"auto_resume,omitempty"`
	OnHostLoss     OnHostLoss   `json:"on_host_loss"`
	// CheckpointSeconds is how often a checkpoint is taken while it runs, and CheckpointAt
	// when the last one was.
	CheckpointSeconds int               `json:"checkpoint_seconds,omitempty"`
	CheckpointAt      *time.Time        `json:"checkpoint_at,omitempty"`
	Env               map[string]string `json:"env,omitempty"`
	// SecretNames are the only thing shown about the secrets.
	SecretNames      []string          `json:"secret_names,omitempty"`
	Metadata         map[string]string `json:"metadata,omitempty"`
	ParentSnapshotID string            `json:"parent_snapshot_id,omitempty"`
	// ParentSandboxID is the sandbox that this one is a copy of, by a fork or from a snapshot, and
	// ForkedAt is when the state that it began with was the parent's. The parent may be gone.
	ParentSandboxID string     `json:"parent_sandbox_id,omitempty"`
	ForkedAt        *time.Time `json:"forked_at,omitempty"`
	// Budget is what the sandbox and everything forked from it may spend, in
	// the currency of the server's rates; 0 is no limit. BudgetRoot is the
	// sandbox that the budget was set on: this one, or the one it was forked
	// from.
	Budget     float64 `json:"budget,omitempty"`
	BudgetRoot string  `json:"budget_root,omitempty"`
	Ended      *Ended  `json:"ended,omitempty"`
	// Resumed says how much of a sandbox came back when it was last woken.
	Resumed *Resumed `json:"resumed,omitempty"`
	// HostLoss is nil for one that never lost its host, or ended with it.
	HostLoss *HostLoss `json:"host_loss,omitempty"`

	// HostLabels are those that its host has to have.
	HostLabels map[string]string `json:"host_labels,omitempty"`

	// Health is what is wrong with it while it runs; nil if the last command ended without
	// such a thing. It is not stored, and lists leave it out.
	Health *Health `json:"health,omitempty"`

	// ProjectID is the owner. Callers see only their own project's objects.
	ProjectID string `json:"-"`
	// SnapshotID is the snapshot of the latest pause, and EarlierSnapshotID that of the
	// pause before, which is deleted once the sandbox is paused again.
	SnapshotID        string `json:"-"`
	EarlierSnapshotID string `json:"-"`
}

// SandboxCreate is a request for a new sandbox. Zero values mean the defaults. The API and the
// Go client use it as is. A new field is described in api/openapi/fields.go, and MCP, the
// command line and each SDK need it too: test/fields names those that lack it.
type SandboxCreate struct {
	Template       string     `json:"template,omitempty"`
	SnapshotID     string     `json:"snapshot_id,omitempty"`
	Name           string     `json:"name,omitempty"`
	CPU            float64    `json:"cpu,omitempty"`
	MemoryMB       int        `json:"memory_mb,omitempty"`
	DiskMB         int        `json:"disk_mb,omitempty"`
	Size           string     `json:"size,omitempty"`
	Network        *Network   `json:"network,omitempty"`
	TimeoutSeconds *int       `json:"timeout_seconds,omitempty"`
	OnTimeout      OnTimeout  `json:"on_timeout,omitempty"`
	IdleSeconds    int        `json:"idle_seconds,omitempty"`
	AutoResume     bool       `json:"auto_resume,omitempty"`
	OnHostLoss     OnHostLoss `json:"on_host_loss,omitempty"`
	// CheckpointSeconds is how often a checkpoint is taken; 0 is never.
	CheckpointSeconds int               `json:"checkpoint_seconds,omitempty"`
	Env               map[string]string `json:"env,omitempty"`
	Secrets           []Secret          `json:"secrets,omitempty"`
	Metadata          map[string]string `json:"metadata,omitempty"`
	Engine            string            `json:"engine,omitempty"`
	// RequireAcceleration refuses an engine whose machines are emulated, or that
	// has none.
	RequireAcceleration bool `json:"require_acceleration,omitempty"`
	// EndWhenIdle has the sandbox ended after IdleSeconds, not paused. It is for doors
	// whose protocol says so.
	EndWhenIdle bool `json:"-"`
	// Budget is what the sandbox and everything forked from it may spend; 0 is
	// no limit.
	Budget float64 `json:"budget,omitempty"`
	// HostLabels has the sandbox made on a host of the cluster with these labels, all of them.
	HostLabels map[string]string `json:"host_labels,omitempty"`
	// Repo is a git repository, as URL#REF, that is cloned before the create returns.
	Repo string `json:"repo,omitempty"`
	// RepoToken is the credential of a private one. It becomes a secret for its host.
	RepoToken string `json:"repo_token,omitempty"`
}

// Secret is a credential that the gateway inserts into requests to Hosts. Its
// value never enters the sandbox. It is only put into Header, or, if that is
// empty, into Authorization and a few other headers that carry credentials.
type Secret struct {
	Name   string   `json:"name"`
	Value  string   `json:"value"`
	Hosts  []string `json:"hosts"`
	Header string   `json:"header,omitempty"`
	// Override sets Header in every request, whatever the request contains. The
	// sandbox then gets no placeholder.
	Override bool `json:"override,omitempty"`
	// AllowEcho says that the value need not be hidden: a host may send it
	// back.
	AllowEcho bool `json:"allow_echo,omitempty"`
}

// SandboxUpdate changes a live sandbox. Nil fields stay as they are.
type SandboxUpdate struct {
	TimeoutSeconds *int       `json:"timeout_seconds,omitempty"`
	OnTimeout      *OnTimeout `json:"on_timeout,omitempty"`
	IdleSeconds    *int       `json:"idle_seconds,omitempty"`
	// OnHostLoss that is not resume has a sandbox that waits to be resumed stay paused.
	OnHostLoss        *OnHostLoss `json:"on_host_loss,omitempty"`
	CheckpointSeconds *int        `json:"checkpoint_seconds,omitempty"`
	// Metadata replaces all there is; an empty map drops them all.
	Metadata map[string]string `json:"metadata,omitzero"`
	Name     *string           `json:"name,omitempty"`
	Network  *Network          `json:"network,omitempty"`
	// Secrets replaces all secrets; an empty list removes them. Those that keep their
	// name keep their placeholder.
	Secrets []Secret `json:"secrets,omitzero"`
	// Budget bounds the sandbox and all that was and is forked from it; 0 lifts
	// the bound.
	Budget *float64 `json:"budget,omitempty"`
}

// SandboxFilter selects sandboxes. Zero values select everything.
type SandboxFilter struct {
	States   []State
	Name     string
	Metadata map[string]string
	// Limit is the page size, 1 to 1000; 0 means 100.
	Limit int
	// Cursor is the NextCursor of the page before.
	Cursor string
}

// Page is one page of a list. NextCursor is empty on the last.
type Page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitempty"`
}

// SandboxService is the life of sandboxes. The caller comes with the context
// (see Caller); another project's sandbox is CodeSandboxNotFound. All methods
// may be called at once from many goroutines.
type SandboxService interface {
	// Create returns when the sandbox is running and its guest has answered. On any error
	// nothing runs; a sandbox whose start failed is kept on record as StateFailed. A repetition
	// of a request (see Once) returns the sandbox that was made, unless that has ended.
	Create(ctx context.Context, req SandboxCreate) (*Sandbox, error)
	// Get returns a sandbox in any state, ended ones included.
	Get(ctx context.Context, id string) (*Sandbox, error)
	// List returns sandboxes, newest first.
	List(ctx context.Context, f SandboxFilter) (Page[*Sandbox], error)
	// Update changes a live sandbox and returns it as it is now.
	Update(ctx context.Context, id string, u SandboxUpdate) (*Sandbox, error)
	// Restart starts a sandbox that has failed again, under its id and with its settings,
	// from the snapshot that it was made from, if that is still there, or from its template.
	// What it did until then is lost.
	Restart(ctx context.Context, id string) (*Sandbox, error)
	// Terminate ends a sandbox. Ending an ended one is not an error.
	Terminate(ctx context.Context, id string) error
}

// HostLabelsKey is the key of metadata in which doors whose protocol has no host labels take
// them, in the form that ParseHostLabels reads.
const HostLabelsKey = "bothy.host_labels"

// ParseHostLabels reads labels in the form zone=a,disk=nvme.
func ParseHostLabels(text string) (map[string]string, error) {
	labels := map[string]string{}
	for _, word := range strings.Split(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(word), "=")
		if _, twice := labels[key]; !ok || key == "" || twice {
			return nil, fmt.Errorf("%q is not of the form zone=a,disk=nvme", text)
		}
		labels[key] = value
	}
	return labels, nil
}
