package bothy

import (
	"context"
	"net"
	"time"
)

// Metrics is what a sandbox uses now.
type Metrics struct {
	Time time.Time `json:"time"`
	// CPUCount is how many processors the sandbox may use, and CPUSeconds what
	// it has used since it was started or last resumed.
	CPUCount         float64 `json:"cpu_count"`
	CPUSeconds       float64 `json:"cpu_seconds"`
	MemoryBytes      int64   `json:"memory_bytes"`
	MemoryLimitBytes int64   `json:"memory_limit_bytes"`
	DiskBytes        int64   `json:"disk_bytes"`
	DiskLimitBytes   int64   `json:"disk_limit_bytes"`
	Processes        int     `json:"processes"`
	NetworkCounters
	// HeldAwakeBy says what keeps an idle_seconds sandbox from being paused:
	// "command", "request", "connection", "terminal" or "cpu". Empty means that it is idle,
	// for IdleForSeconds.
	HeldAwakeBy    []string `json:"held_awake_by,omitempty"`
	IdleForSeconds float64  `json:"idle_for_seconds,omitempty"`
}

// SandboxMetrics is the latest measurement of a sandbox.
type SandboxMetrics struct {
	SandboxID string `json:"sandbox_id"`
	// CPUUsed is how many processors the sandbox has used on average since the
	// measurement before; nil at the first.
	CPUUsed *float64 `json:"cpu_used"`
	Metrics
}

// MetricsService tells what sandboxes use.
type MetricsService interface {
	Metrics(ctx context.Context, id string) (*Metrics, error)
	// MetricsHistory returns the measurements taken every ten seconds between two
	// times, oldest first; a zero time is no limit. At most half an hour is kept, in
	// memory, since the sandbox was last started or resumed, or the server was
	// started. There are none for a sandbox that is not running.
	MetricsHistory(ctx context.Context, id string, from, to time.Time) ([]*Metrics, error)
	// LatestMetrics returns the latest of these of every sandbox of the project that
	// runs and was measured.
	LatestMetrics(ctx context.Context) ([]*SandboxMetrics, error)
}

// PortService reaches servers inside sandboxes.
type PortService interface {
	// DialPort connects to a TCP port of a sandbox, also when the server there
	// listens on the sandbox's own loopback only. CodeConflict means that
	// nothing listens.
	DialPort(ctx context.Context, id string, port uint16) (net.Conn, error)
}

// PortDialer is implemented by a Guest that can connect to servers on the
// sandbox's loopback.
type PortDialer interface {
	DialPort(ctx context.Context, port uint16) (net.Conn, error)
}

// SSHRequest asks for a connection to the SSH server of a sandbox.
type SSHRequest struct {
	// User is whom sessions run as; the sandbox's own when empty.
	User string
	// HostKeySeed is the seed of the server's host key, an Ed25519 key.
	HostKeySeed []byte
}

// SSHService reaches the SSH servers of sandboxes.
type SSHService interface {
	// DialSSH connects to the SSH server of a sandbox, which asks for no proof of who the caller
	// is: this call has one.
	DialSSH(ctx context.Context, id string, req SSHRequest) (net.Conn, error)
}

// SSHDialer is implemented by a Guest that has an SSH server.
type SSHDialer interface {
	DialSSH(ctx context.Context, req SSHRequest) (net.Conn, error)
}

// OwnedGateway is implemented by a Gateway that shares something among
// projects.
type OwnedGateway interface {
	// SetOwner tells which project owns the sandbox. Until then none does.
	SetOwner(projectID string)
}

// SecretKeeper is implemented by a Gateway that inserts secrets into outgoing
// requests.
type SecretKeeper interface {
	// SetSecrets replaces the secrets. CodeInvalid names the one at fault. What
	// the sandbox sees of them follows from seed, and is the same for two that
	// are given the same; an empty seed is the sandbox's own.
	SetSecrets(list []Secret, seed []byte) error
	// CAPEM is the certificate authority that the sandbox must trust, or nil.
	CAPEM() []byte
	// Placeholders is what the sandbox sees, by secret name.
	Placeholders() map[string]string
}
