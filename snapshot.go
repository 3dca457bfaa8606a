package bothy

import (
	"context"
	"io"
	"time"
)

// SnapshotKind is how much a snapshot holds.
type SnapshotKind string

// The kinds of snapshots.
const (
	SnapshotMemory SnapshotKind = "memory"
	SnapshotFiles  SnapshotKind = "files"
)

// Durable is what has to be lost for a snapshot to be lost.
type Durable string

// Where snapshots are stored.
const (
	// DurableHost is the disk of the server's host alone.
	DurableHost Durable = "host"
	// DurableStore is the object storage as well.
	DurableStore Durable = "store"
)

// Snapshot is a frozen sandbox.
type Snapshot struct {
	ID        string       `json:"id"`
	SandboxID string       `json:"sandbox_id"`
	ParentID  string       `json:"parent_id,omitempty"`
	Name      string       `json:"name,omitempty"`
	Template  string       `json:"template"`
	Kind      SnapshotKind `json:"kind"`
	SizeBytes int64        `json:"size_bytes"`
	CreatedAt time.Time    `json:"created_at"`
	// Durable says where its files are.
	Durable Durable `json:"durable"`
	// Checkpoint says that the server took it by itself, and deletes it once there is a newer
	// one.
	Checkpoint bool `json:"checkpoint,omitempty"`
	// Detail says why a snapshot holds files only where memory could be expected.
	Detail string `json:"detail,omitempty"`

	ProjectID string `json:"-"`
	// Needs is what a host must have to wake its memory, if there is any.
	Needs *MemoryNeeds `json:"-"`
}

// MemoryNeeds is what a host must have to wake some memory.
type MemoryNeeds struct {
	Engine string `json:"engine"`
	Build  string `json:"build"`
	// Processor is missing where nothing is known of it.
	Processor *Processor `json:"processor,omitempty"`
}

// FileChangeKind is how a file differs between two snapshots.
type FileChangeKind string

// The kinds of changes.
const (
	FileAdded   FileChangeKind = "added"
	FileChanged FileChangeKind = "changed"
	FileRemoved FileChangeKind = "removed"
)

// FileChange is a file that differs between two snapshots: in its content, type,
// permissions, owner or the target of a link. Times alone do not count.
type FileChange struct {
	Path   string         `json:"path"`
	Change FileChangeKind `json:"change"`
	Type   FileType       `json:"type"`
	Size   int64          `json:"size"`
}

// SnapshotChanges are the files that differ between two snapshots, in order.
type SnapshotChanges struct {
	Items []FileChange `json:"items"`
	// Truncated says that there are more than were asked for.
	Truncated bool `json:"truncated"`
}

// SnapshotFilter selects snapshots.
type SnapshotFilter struct {
	SandboxID string
	Name      string
	Limit     int
	Cursor    string
}

// ForkRequest asks for live copies of a sandbox.
type ForkRequest struct {
	Count          int
	Name           string
	TimeoutSeconds *int
	Env            map[string]string
	Metadata       map[string]string
	Network        *Network
	// Secrets gives the copies the original's secrets, too.
	Secrets bool
}

// PauseOptions say how a sandbox is put to sleep.
type PauseOptions struct {
	// FilesOnly keeps files and drops memory and processes.
	FilesOnly bool
	Name      string
	// Wait is DurableStore to have the answer wait until the snapshot is in the object
	// storage. It is given up after some minutes; the snapshot says how far it came.
	Wait Durable
}

// ResumeOptions say how a paused sandbox comes back.
type ResumeOptions struct {
	// FilesOnly discards any memory: the sandbox restarts with its files.
	FilesOnly bool
}

// SnapshotCreate asks for a snapshot of a sandbox that runs on.
type SnapshotCreate struct {
	Name string
	// FilesOnly leaves memory and processes out.
	FilesOnly bool
	// Wait is that of PauseOptions.
	Wait Durable
}

// SnapshotMover carries snapshots between servers, as one file each.
type SnapshotMover interface {
	// ExportSnapshot writes a snapshot as a compressed archive, encrypted if a
	// passphrase is given. It can be imported elsewhere with its files, and
	// with its memory if the engine build that wrote it is there.
	ExportSnapshot(ctx context.Context, id, passphrase string, w io.Writer) error
	// ImportSnapshot reads a whole archive, checks it, and stores it under a new id,
	// as a snapshot of a sandbox unknown to this server. A name replaces its original
	// one. Memory is kept only from archives signed by this server, or with a key
	// that its operator trusts; Detail says so if it was left out.
	ImportSnapshot(ctx context.Context, name, passphrase string, r io.Reader) (*Snapshot, error)
	// ArchiveKey returns the public key that signs what this server exports.
	ArchiveKey(ctx context.Context) (*ArchiveKey, error)
}

// ArchiveKey is by what another server knows what this one exported.
type ArchiveKey struct {
	// Key is an Ed25519 public key, as bothy-key- and 43 characters.
	Key string `json:"key"`
}

// SnapshotService stops, copies and turns back time.
type SnapshotService interface {
	// Pause freezes a sandbox into a snapshot and frees everything else.
	Pause(ctx context.Context, id string, o PauseOptions) (*Snapshot, error)
	// Resume wakes a paused sandbox, by its own id or its snapshot's.
	Resume(ctx context.Context, id string, o ResumeOptions) (*Sandbox, error)
	// CreateSnapshot takes a live snapshot; the sandbox runs on.
	CreateSnapshot(ctx context.Context, id string, req SnapshotCreate) (*Snapshot, error)
	Snapshot(ctx context.Context, id string) (*Snapshot, error)
	Snapshots(ctx context.Context, f SnapshotFilter) (Page[*Snapshot], error)
	// CompareSnapshots lists at most limit files that differ between the snapshot and the
	// one called since.
	CompareSnapshots(ctx context.Context, since, id string, limit int) (*SnapshotChanges, error)
	// DeleteSnapshot frees a snapshot; CodeSnapshotInUse while a paused
	// sandbox sleeps in it.
	DeleteSnapshot(ctx context.Context, id string) error
	// Fork makes count running copies, memory included.
	Fork(ctx context.Context, id string, req ForkRequest) ([]*Sandbox, error)
	// Rollback returns the sandbox to its state at a snapshot; its state until
	// now is kept as another snapshot.
	Rollback(ctx context.Context, id, snapshotID string) (*Sandbox, error)
}
