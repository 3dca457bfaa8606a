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
