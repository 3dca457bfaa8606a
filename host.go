package bothy

import "context"

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
