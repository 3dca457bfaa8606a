package bothy

import (
	"context"
	"time"
)

// Event is something that happened to an object of a project.
type Event struct {
	// ID grows with time and can be given as `since`.
	ID        int64             `json:"id"`
	Time      time.Time         `json:"time"`
	Type      string            `json:"type"` // such as sandbox.created
	SandboxID string            `json:"sandbox_id,omitempty"`
	Data      map[string]string `json:"data,omitempty"`

	ProjectID string `json:"-"`
}

// The types of events.
const (
	EventSandboxCreated    = "sandbox.created"
	EventSandboxUpdated    = "sandbox.updated"
	EventSandboxPaused     = "sandbox.paused"
	EventSandboxResumed    = "sandbox.resumed"
	EventSandboxForked     = "sandbox.forked"
	EventSandboxRolledBack = "sandbox.rolled_back"
	// EventSandboxRestarted tells that a sandbox which had failed was started again.
	EventSandboxRestarted = "sandbox.restarted"
	// EventSandboxUnattached tells that a sandbox which outlived its server cannot be
	// used yet, because its machine could not be taken over; it is tried again.
	EventSandboxUnattached = "sandbox.unattached"
	// EventSandboxHostLost tells that the host of a sandbox was given up, and what became
	// of the sandbox.
	EventSandboxHostLost = "sandbox.host_lost"
	// EventSandboxNotResumed tells that a sandbox which lost its host could not be resumed,
	// why, and when it is tried again.
	EventSandboxNotResumed = "sandbox.not_resumed"
	// EventSandboxCheckpointFailed tells that a checkpoint could not be taken, and why.
	EventSandboxCheckpointFailed = "sandbox.checkpoint_failed"
	// EventSandboxMoved says that a sandbox is on another host now;
	// EventSandboxMoveFailed says why a move failed, after which the sandbox
	// continues where it was.
	EventSandboxMoved      = "sandbox.moved"
	EventSandboxMoveFailed = "sandbox.move_failed"
	// EventSandboxConflict says that a change was not stored, because something other than the
	// sandbox's server has changed its record.
	EventSandboxConflict = "sandbox.conflict"
	EventSandboxEnded    = "sandbox.ended"
	EventSandboxOOM      = "sandbox.oom_killed"
	// EventSandboxUnhealthy tells that something is wrong with a sandbox that runs: data has the
	// status and the detail of its Health.
	EventSandboxUnhealthy = "sandbox.unhealthy"
	EventSnapshotCreated  = "snapshot.created"
	EventSnapshotDeleted  = "snapshot.deleted"
	// EventSnapshotStored tells that a snapshot is in the object storage now.
	EventSnapshotStored = "snapshot.stored"
	// EventEnginePreparing says what the first sandbox of an engine is waiting for:
	// data names the engine and the step, such as the download of a kernel.
	EventEnginePreparing = "engine.preparing"
	EventBudgetWarning   = "budget.warning"
	EventBudgetExceeded  = "budget.exceeded"
	// EventWebhookTest is sent to a webhook that is tried, and is not recorded.
	EventWebhookTest = "webhook.test"
)

// EventTypes are the types of the events that are recorded.
var EventTypes = []string{
	EventSandboxCreated, EventSandboxUpdated, EventSandboxPaused, EventSandboxResumed, EventSandboxForked, EventSandboxRolledBack, EventSandboxRestarted,
	EventSandboxUnattached, EventSandboxHostLost, EventSandboxNotResumed, EventSandboxCheckpointFailed, EventSandboxMoved, EventSandboxMoveFailed, EventSandboxConflict, EventSandboxEnded, EventSandboxOOM, EventSandboxUnhealthy, EventSnapshotCreated, EventSnapshotDeleted, EventSnapshotStored,
	EventEnginePreparing, EventBudgetWarning, EventBudgetExceeded,
}

// EventFilter chooses events.
type EventFilter struct {
	// Since leaves out those with this id and below.
	Since int64
	// SandboxID leaves out those of other sandboxes, and of none.
	SandboxID string
	// Follow waits for new ones.
	Follow bool
}

// EventService tells what happened.
type EventService interface {
	// Events calls fn for the caller's events, oldest first, and, when
	// following, for new ones until ctx ends.
	Events(ctx context.Context, f EventFilter, fn func(Event) error) error
	// LastEvent returns an id above which are only events that happen from now on.
	LastEvent(ctx context.Context) (int64, error)
}

// WebhookFormat is the format of a webhook's requests.
type WebhookFormat string

// The formats of webhooks.
const (
	// WebhookStandard sends events as GET /v1/events has them, signed as the
	// specification Standard Webhooks says.
	WebhookStandard WebhookFormat = "standard"
	// WebhookE2B sends what E2B's service would.
	WebhookE2B WebhookFormat = "e2b"
)

// Webhook has the events of a project sent to a URL, in their order, each at least
// once, until it is deleted.
type Webhook struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	URL  string `json:"url"`
	// Events are the types that are sent; empty means all of them.
	Events  []string      `json:"events,omitempty"`
	Enabled bool          `json:"enabled"`
	Format  WebhookFormat `json:"format"`
	// Secret signs requests. It is set only in the answer that creates the webhook.
	Secret    string    `json:"secret,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	WebhookState

	ProjectID string `json:"-"`
}

// WebhookState is how far a webhook's deliveries have come.
type WebhookState struct {
	// LastEventID is the last event that was dealt with.
	LastEventID int64 `json:"last_event_id"`
	// DeliveredAt is when the receiver last took one.
	DeliveredAt *time.Time `json:"delivered_at,omitempty"`
	// FailingSince and LastError are set from a failed attempt to the next one that
	// succeeds. NextAttemptAt is when it is retried.
	FailingSince  *time.Time `json:"failing_since,omitempty"`
	LastError     string     `json:"last_error,omitempty"`
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	// DisabledReason says why the server has switched the webhook off.
	DisabledReason string `json:"disabled_reason,omitempty"`
	// Refused counts the events that the receiver did not want, and that were given up.
	Refused int64 `json:"refused,omitempty"`
}

// WebhookCreate is a request for a webhook.
type WebhookCreate struct {
	Name   string   `json:"name,omitempty"`
	URL    string   `json:"url"`
	Events []string `json:"events,omitempty"`
	// Secret is made by the server when empty.
	Secret string `json:"secret,omitempty"`
	// Disabled creates a webhook that sends nothing until it is enabled.
	Disabled bool          `json:"disabled,omitempty"`
	Format   WebhookFormat `json:"format,omitempty"`
}

// WebhookUpdate changes what is not nil.
type WebhookUpdate struct {
	Name    *string   `json:"name,omitempty"`
	URL     *string   `json:"url,omitempty"`
	Events  *[]string `json:"events,omitempty"`
	Secret  *string   `json:"secret,omitempty"`
	Enabled *bool     `json:"enabled,omitempty"`
}

// WebhookTest is the result of a test.
type WebhookTest struct {
	// Status is the receiver's HTTP status, 0 when there was no answer.
	Status int `json:"status,omitempty"`
	// Error says why the event counts as not delivered.
	Error        string  `json:"error,omitempty"`
	Milliseconds float64 `json:"milliseconds"`
}

// WebhookService keeps a project's webhooks.
type WebhookService interface {
	CreateWebhook(ctx context.Context, req WebhookCreate) (*Webhook, error)
	// Webhooks lists the caller's, oldest first.
	Webhooks(ctx context.Context) ([]*Webhook, error)
	Webhook(ctx context.Context, id string) (*Webhook, error)
	UpdateWebhook(ctx context.Context, id string, u WebhookUpdate) (*Webhook, error)
	DeleteWebhook(ctx context.Context, id string) error
	// TestWebhook sends an event of the type webhook.test now, once.
	TestWebhook(ctx context.Context, id string) (*WebhookTest, error)
}

// LogEntry is a piece of output of a command that was started through the API.
type LogEntry struct {
	PID int `json:"pid"`
	// Stream is stdout, stderr or pty.
	Stream string `json:"stream"`
	// Data is the output. Bytes that are not UTF-8 arrive base64-encoded, with
	// Encoding "base64".
	Data     string `json:"data"`
	Encoding string `json:"encoding,omitempty"`
	// Offset is the position of Data's first byte in the whole output of the
	// command, both streams together.
	Offset int64 `json:"offset"`
}

// Logs is the output that a sandbox still holds.
type Logs struct {
	Items []LogEntry `json:"items"`
	// Truncated is true where output was dropped, by the sandbox or to keep
	// the answer short.
	Truncated bool `json:"truncated"`
}

// LogService shows the output of commands.
type LogService interface {
	// Logs returns the output of the process, or of all when pid is 0, by
	// process in the order of their start.
	Logs(ctx context.Context, id string, pid int) (*Logs, error)
}
