package lifecycle

import (
	"context"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// transfersAtOnce limits concurrent exports and imports, each of which takes about 50 MB of
	// memory and most of a processor. transfersOfProject limits those of one project.
	transfersAtOnce    = 8
	transfersOfProject = 2
	// transferWait is how long another one waits for a slot.
	transferWait = 10 * time.Second
	// transferLimit ends transfers that would hold their slot for ever.
	transferLimit = 24 * time.Hour
)

// transfers are the exports and imports in progress.
type transfers struct {
	mu    sync.Mutex
	count int
	of    map[string]int
	// changed is closed when one ends.
	changed chan struct{}
}

func newTransfers() *transfers {
	return &transfers{of: map[string]int{}, changed: make(chan struct{})}
}

// begin waits for a slot. The returned context ends after transferLimit.
func (t *transfers) begin(ctx context.Context, clock bothy.Clock, project string) (_ context.Context, done func(), err error) {
	late := make(chan struct{})
	stop := clock.AfterFunc(transferWait, func() { close(late) })
	defer stop()
	for {
		changed, full := t.try(project)
		if full == nil {
			break
		}
		select {
		case <-changed:
		case <-late:
			return nil, nil, full
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stopLimit := clock.AfterFunc(transferLimit, func() {
		cancel(bothy.Errorf(bothy.CodeTimeout, "the archive took longer than %v", transferLimit).WithHint("Use a faster connection."))
	})
	return ctx, func() {
		stopLimit()
		cancel(nil)
		t.end(project)
	}, nil
}

// try takes a slot. If there is none, it returns the error and a channel that is closed when
// one ends.
func (t *transfers) try(project string) (changed <-chan struct{}, full error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var e *bothy.Error
	switch {
	case t.of[project] >= transfersOfProject:
		e = bothy.Errorf(bothy.CodeRateLimited, "the project has %d exports and imports in progress, the most allowed", t.of[project])
	case t.count >= transfersAtOnce:
		e = bothy.Errorf(bothy.CodeCapacity, "the server has %d exports and imports in progress, the most allowed", t.count)
	default:
		t.count++
		t.of[project]++
		return nil, nil
	}
	e.WithHint("Try again when one of them has ended.").RetryAfter = transferWait
	return t.changed, e
}

func (t *transfers) end(project string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count--
	if t.of[project]--; t.of[project] == 0 {
		delete(t.of, project)
	}
	close(t.changed)
	t.changed = make(chan struct{})
}
