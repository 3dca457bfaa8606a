// Package ledger keeps the record of each sandbox's state: the rows in the store, the events,
// and the allowed transitions. What the store cannot take now is kept in memory, treated as if
// it were stored, and stored later. A sandbox is changed by one operation at a time, which
// holds its lock. A row that something else has changed is never overwritten, see conflict.go.
package ledger

import (
	"context"
	"log/slog"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/keylock"
	"github.com/bothy-dev/bothy/store"
)

// Store is what the ledger needs of store.Store.
type Store interface {
	Sandbox(ctx context.Context, id string) (*store.Sandbox, error)
	PutSandbox(ctx context.Context, sb *store.Sandbox) error
	AddEvent(ctx context.Context, e *bothy.Event) error
	Events(ctx context.Context, projectID string, after int64, limit int) ([]bothy.Event, error)
	EventsBefore(ctx context.Context, projectID string, before int64, limit int) ([]bothy.Event, error)
	LastEvent(ctx context.Context) (int64, error)
}

// Options configure a Ledger.
type Options struct {
	Store Store
	// Start stores a sandbox that starts to count against its project's plan, or returns an
	// error; created is true for a new or restarted one. If it is nil, PutSandbox is used.
	Start func(ctx context.Context, sb *store.Sandbox, created bool) error
	// Elsewhere is called if another host turns out to own a sandbox. Optional.
	Elsewhere func(id string)
	// Observe is called with every stored event. Optional.
	Observe func(bothy.Event)
	Clock   bothy.Clock
	Log     *slog.Logger
	// Background ends with the service.
	Background context.Context
}

// Ledger is the record of all sandboxes.
type Ledger struct {
	o       Options
	events  *broadcaster
	locks   keylock.Locks
	retries retries
	unsaved unsaved
	stored  stored
}

// New returns a ledger.
func New(o Options) *Ledger { return &Ledger{o: o, events: newBroadcaster()} }

// Find returns the caller's sandbox. Another project's is not found.
func (g *Ledger) Find(ctx context.Context, id string, scope bothy.Scope) (*store.Sandbox, error) {
	caller, err := bothy.Require(ctx, scope)
	if err != nil {
		return nil, err
	}
	sb, err := g.Sandbox(ctx, id)
	if err != nil {
		return nil, err
	}
	if sb.ProjectID != caller.ProjectID {
		return nil, bothy.NoSandbox(id)
	}
	return sb, nil
}
