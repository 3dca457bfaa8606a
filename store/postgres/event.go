package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store/record"
)

// Event ids must follow the order of commits, so events are committed one batch after another.
// Those that arrive during a commit form the next batch.
type eventQueue struct {
	mu      sync.Mutex
	busy    bool
	waiting []*newEvent
}

type newEvent struct {
	project, text string
	time          int64

	done chan struct{} // closed when the following is set
	id   int64
	err  error
}

// eventsAtOnce is the maximum number of events per commit.
const eventsAtOnce = 500

const addEvents = `WITH ends AS (UPDATE events_end SET last_id = last_id + $1::bigint RETURNING last_id),
	added AS (INSERT INTO events (id, project, time, record)
		SELECT ends.last_id - $1::bigint + e.n, e.project, e.time, e.record
		FROM ends, unnest($2::text[], $3::bigint[], $4::text[]) WITH ORDINALITY AS e(project, time, record, n))
	SELECT last_id FROM ends`

// AddEvent implements store.Store.
func (s *Store) AddEvent(ctx context.Context, e *bothy.Event) error {
	text, err := record.EncodeEvent(e)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("store: add event: %w", err)
	}
	n := &newEvent{project: e.ProjectID, text: text, time: nanos(e.Time), done: make(chan struct{})}
	q := &s.events
	q.mu.Lock()
	q.waiting = append(q.waiting, n)
	if !q.busy {
		q.busy = true
		go s.writeEvents()
	}
	q.mu.Unlock()
	<-n.done
	if n.err == nil {
		e.ID = n.id
	}
	return n.err
}

// writeEvents writes the queued events until there are none.
func (s *Store) writeEvents() {
	q := &s.events
	for {
		q.mu.Lock()
		n := min(len(q.waiting), eventsAtOnce)
		if n == 0 {
			q.busy, q.waiting = false, nil
			q.mu.Unlock()
			return
		}
		some := q.waiting[:n:n]
		q.waiting = q.waiting[n:]
		q.mu.Unlock()
		last, err := s.addEvents(some)
		for i, e := range some {
			e.id, e.err = last-int64(n-1-i), err
			close(e.done)
		}
	}
}

func (s *Store) addEvents(list []*newEvent) (last int64, err error) {
	projects, texts, times := make([]string, len(list)), make([]string, len(list)), make([]int64, len(list))
	for i, e := range list {
		projects[i], texts[i], times[i] = e.project, e.text, e.time
	}
	err = s.changing(context.Background(), "add event", once, func(ctx context.Context) error {
		_, err := s.send(ctx, once, []statement{do(addEvents, int64(len(list)), projects, times, texts)}, func(rows pgx.Rows) error {
			last, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
			return err
		})
		return err
	})
	return last, err
}

// Events implements store.Store.
func (s *Store) Events(ctx context.Context, projectID string, since int64, limit int) ([]bothy.Event, error) {
	return s.listEvents(ctx, `SELECT id, record FROM events WHERE project = $1 AND id > $2 ORDER BY id LIMIT $3`, projectID, since, limit)
}

// EventsBefore implements store.Store.
func (s *Store) EventsBefore(ctx context.Context, projectID string, before int64, limit int) ([]bothy.Event, error) {
	return s.listEvents(ctx, `SELECT id, record FROM events WHERE project = $1 AND id < $2 ORDER BY id DESC LIMIT $3`, projectID, before, limit)
}

func (s *Store) listEvents(ctx context.Context, text, projectID string, id int64, limit int) ([]bothy.Event, error) {
	return list(ctx, s, "list events", text, []any{projectID, id, record.PageSize(limit)}, func(row pgx.CollectableRow) (e bothy.Event, err error) {
		var id int64
		var text string
		if err := row.Scan(&id, &text); err != nil {
			return e, err
		}
		return record.DecodeEvent(id, text)
	})
}

// LastEvent implements store.Store.
func (s *Store) LastEvent(ctx context.Context) (id int64, err error) {
	id, _, err = first(ctx, s, "find the last event", `SELECT last_id FROM events_end`, nil, pgx.RowTo[int64])
	return id, err
}

// DeleteEventsBefore implements store.Store.
func (s *Store) DeleteEventsBefore(ctx context.Context, t time.Time) (int, error) {
	return s.deleteOld(ctx, "forget events", `DELETE FROM events WHERE id IN (SELECT id FROM events WHERE time < $1 ORDER BY time LIMIT $2)`, t)
}
