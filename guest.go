package bothy

import (
	"context"
	"io"
	"net"
	"time"
)

// Identity is what makes a machine this sandbox and no other. It is given at
// adoption: after a boot, and again after every restore, so that no copy shares
// it with another.
type Identity struct {
	// Key opens the guest's door from now on.
	Key       string
	SandboxID string
	Hostname  string
	// MachineID is 32 hexadecimal digits.
	MachineID string
	// Env is the environment of every command.
	Env map[string]string
	// Now is the host's clock.
	Now time.Time
	// Entropy is fresh randomness for this copy.
	Entropy          []byte
	DefaultUser      string
	DefaultCwd       string
	MemoryLimitBytes int64
	// CABundle holds certificates in PEM, trusted in addition to the template's. May
	// be empty.
	CABundle string
	// ResolvConf is the content of /etc/resolv.conf.
	ResolvConf string
}

// Killed says which process the guest killed to free memory.
type Killed struct {
	// Done is false when there was nothing to kill.
	Done bool
	PID  int
	Name string
	// RSSBytes is the memory that it held, and with it those that were killed
	// together with it.
	RSSBytes int64
}

// GuestStats is what the guest sees of its machine.
type GuestStats struct {
	Processes        int
	CPUs             int
	MemoryTotalBytes int64
	MemoryUsedBytes  int64
	DiskTotalBytes   int64
	DiskUsedBytes    int64
	// Commands counts those that were started through the API and run now,
	// without terminals and the interpreters of code contexts.
	Commands int
	// Interpreters counts those of code contexts; they are among Processes.
	Interpreters int
	Uptime       time.Duration
}

// Guest is the host's side of one sandbox's agent. The agent may be under a
// hostile user's hand: its answers are bounded, and trusted with nothing. A
// method that cannot reach it fails with CodeGuest. The methods without a
// comment are those of ExecService and FileService, for this one sandbox.
type Guest interface {
	// WaitReady returns when the guest answers.
	WaitReady(ctx context.Context) error
	// Adopt gives the sandbox its identity; see Identity.
	Adopt(ctx context.Context, id Identity) error
	// KillLargest kills the user process that holds the most memory.
	KillLargest(ctx context.Context, limitBytes int64) (Killed, error)
	Stats(ctx context.Context) (GuestStats, error)
	// Freeze flushes files and gives back memory before a snapshot; Thaw ends
	// that.
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	// CloseIdle closes connections that are not in use.
	CloseIdle()

	Exec(ctx context.Context, req ExecRequest) (*ExecResult, error)
	ExecStream(ctx context.Context, req ExecRequest, fn func(ExecEvent) error) error
	Processes(ctx context.Context) ([]ProcessInfo, error)
	AllProcesses(ctx context.Context) ([]ProcessInfo, error)
	Output(ctx context.Context, pid int, from int64, fn func(ExecEvent) error) error
	Stdin(ctx context.Context, pid int, data []byte, eof bool) error
	Signal(ctx context.Context, pid int, signal int) error
	Wait(ctx context.Context, req WaitRequest) (*WaitResult, error)
	Terminal(ctx context.Context, req TerminalRequest) (Terminal, error)

	Read(ctx context.Context, path, user string) (io.ReadCloser, *FileInfo, error)
	Write(ctx context.Context, path string, r io.Reader, o WriteOptions) (*FileInfo, error)
	List(ctx context.Context, path, user string, depth int) ([]FileInfo, error)
	Stat(ctx context.Context, path, user string) (*FileInfo, error)
	Mkdir(ctx context.Context, path, user string) (*FileInfo, error)
	Move(ctx context.Context, from, to, user string) (*FileInfo, error)
	Remove(ctx context.Context, path, user string) error
	Watch(ctx context.Context, path, user string, recursive bool, fn func(FileEvent) error) error
	ReadArchive(ctx context.Context, path, user string, o ArchiveOptions) (io.ReadCloser, error)
	WriteArchive(ctx context.Context, path, user string, r io.Reader) error
}

// Gateway is the host's end of one sandbox's network device, with the policy. It starts
// shut: until SetPolicy nothing leaves the sandbox.
type Gateway interface {
	// Dial connects to a port of the sandbox.
	Dial(ctx context.Context, port uint16) (net.Conn, error)
	// SetPolicy takes effect on the next packet, and ends open connections
	// that it no longer allows.
	SetPolicy(n Network) error
	Counters() NetworkCounters
	// Follow calls fn for the decisions since a time and then for new ones,
	// until ctx ends.
	Follow(ctx context.Context, since time.Time, fn func(NetworkDecision) error) error
	// Log returns the decisions since a time that are still held.
	Log(since time.Time) []NetworkDecision
	Close() error
}
