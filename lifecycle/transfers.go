package lifecycle

import (
	"context"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// transfersAtOnce bounds the exports and imports under way, each of which takes
	// some 50 MB of memory and most of a processor, and transfersOfProject those of one
	// project.
	transfersAtOnce    = 8
	transfersOfProject = 2
	// transferWait is how long one more waits for its turn.
	transferWait = 10 * time.Second
	// transferLimit ends what would hold its place for ever.
	transferLimit = 24 * time.Hour
)

// transfers are the exports and imports under way.
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

// begin waits for its turn and for no longer than ctx. The context that it returns
// ends with the time that a transfer may take.
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

// try takes a place, or says why there is none and what to wait for.
func (t *transfers) try(project string) (changed <-chan struct{}, full error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var e *bothy.Error
	switch {
	case t.of[project] >= transfersOfProject:
		e = bothy.Errorf(bothy.CodeRateLimited, "the project has %d exports and imports under way, which is as many as it may", t.of[project])
	case t.count >= transfersAtOnce:
		e = bothy.Errorf(bothy.CodeCapacity, "the server has %d exports and imports under way, which is as many as it may", t.count)
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
