package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// retryFirst and retrySeldom are the pauses between attempts, at first and at
	// most.
	retryFirst  = time.Second
	retrySeldom = 30 * time.Second
	// maxUnsent bounds the events that wait for the store; the oldest go first.
	maxUnsent = 1000
)

// retries are the things that failed and must be done all the same, one per key,
// so there are at most a few for each sandbox.
type retries struct {
	mu sync.Mutex
	m  map[string]*retry
}

type retry struct {
	do   func(context.Context) error
	turn int // counts what do was replaced by
	wait time.Duration
	stop func() bool
}

// later calls do until it succeeds, with growing pauses by the service's clock. It
// replaces what waits under the same key. do must find out by itself whether there
// is still something to do.
func (s *Service) later(key string, do func(context.Context) error) {
	s.retries.mu.Lock()
	defer s.retries.mu.Unlock()
	if r := s.retries.m[key]; r != nil {
		r.do = do
		r.turn++
		return
	}
	if s.retries.m == nil {
		s.retries.m = map[string]*retry{}
	}
	r := &retry{do: do, wait: retryFirst}
	s.retries.m[key] = r
	s.armRetry(key, r)
}

// armRetry is called with retries.mu held.
func (s *Service) armRetry(key string, r *retry) {
	r.stop = s.clock.AfterFunc(r.wait, func() { s.runRetry(key, r) })
}

func (s *Service) runRetry(key string, r *retry) {
	if s.background.Err() != nil {
		return
	}
	s.retries.mu.Lock()
	do, turn := r.do, r.turn
	s.retries.mu.Unlock()
	err := do(s.background)
	s.retries.mu.Lock()
	defer s.retries.mu.Unlock()
	if err == nil && r.turn == turn {
		delete(s.retries.m, key)
		return
	}
	r.wait = min(2*r.wait, retrySeldom)
	s.armRetry(key, r)
}

func (s *Service) stopRetries() {
	s.retries.mu.Lock()
	defer s.retries.mu.Unlock()
	for _, r := range s.retries.m {
		r.stop()
	}
}

// unrecorded is what has happened and the store could not take yet. Everybody sees
// it as if it were stored.
type unrecorded struct {
	mu     sync.Mutex
	rows   map[string]unrecordedRow // by sandbox
	events []bothy.Event
}

type unrecordedRow struct {
	sb   bothy.Sandbox
	then func() // once it is stored; may be nil
}

// sandbox is the row of a sandbox as it is now.
func (s *Service) sandbox(ctx context.Context, id string) (*bothy.Sandbox, error) {
	if sb := s.unrecorded.row(id); sb != nil {
		return sb, nil
	}
	return s.o.Store.Sandbox(ctx, id)
}

func (u *unrecorded) row(id string) *bothy.Sandbox {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r, ok := u.rows[id]; ok {
		return &r.sb
	}
	return nil
}

// put stores a sandbox, whose lock the caller holds.
func (s *Service) put(ctx context.Context, sb *bothy.Sandbox) error {
	if err := s.o.Store.PutSandbox(ctx, sb); err != nil {
		return err
	}
	s.unrecorded.mu.Lock()
	r := s.unrecorded.rows[sb.ID]
	delete(s.unrecorded.rows, sb.ID)
	s.unrecorded.mu.Unlock()
	if r.then != nil {
		r.then()
	}
	return nil
}

// insist stores what has happened to a sandbox and cannot be refused any more, and
// then calls then. What the store cannot take now, because the disk is full for
// example, is remembered and stored when it can be.
func (s *Service) insist(ctx context.Context, sb *bothy.Sandbox, cannot error, then func()) {
	if cannot == nil {
		cannot = s.put(context.WithoutCancel(ctx), sb)
	}
	if cannot == nil {
		if then != nil {
			then()
		}
		return
	}
	s.log.Error("cannot store the state of a sandbox, and try again until it is stored", "sandbox", sb.ID, "state", sb.State, "error", cannot)
	s.unrecorded.mu.Lock()
	if s.unrecorded.rows == nil {
		s.unrecorded.rows = map[string]unrecordedRow{}
	}
	s.unrecorded.rows[sb.ID] = unrecordedRow{*sb, then}
	s.unrecorded.mu.Unlock()
	s.later("store "+sb.ID, func(ctx context.Context) error { return s.storeRow(ctx, sb.ID) })
}

func (s *Service) storeRow(ctx context.Context, id string) error {
	unlock, err := s.lockToWork(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	sb := s.unrecorded.row(id)
	if sb == nil {
		return nil
	}
	return s.put(ctx, sb)
}

// Problems says what is wrong although the service works, for the operator.
func (s *Service) Problems() (found []string) {
	if s.o.DiskFull != nil && s.o.DiskFull() {
		found = append(found, "the disk under the state is full: no sandbox can be started or paused")
	}
	s.unrecorded.mu.Lock()
	rows, events := len(s.unrecorded.rows), len(s.unrecorded.events)
	s.unrecorded.mu.Unlock()
	if rows+events > 0 {
		found = append(found, fmt.Sprintf("the state of %d sandboxes and %d events cannot be stored and are kept in memory; the server's log says why", rows, events))
	}
	s.mu.Lock()
	unattached, unclaimed := len(s.unattached), len(s.unclaimed)
	s.mu.Unlock()
	if unclaimed > 0 {
		found = append(found, fmt.Sprintf("the database has lost %d sandboxes whose machines run: they are frozen and kept aside; `bothy doctor` lists them", unclaimed))
	}
	if unattached > 0 {
		found = append(found, fmt.Sprintf("%d sandboxes of the last server run and could not be taken over yet; the server's log says why", unattached))
	}
	return found
}

// flush makes a last attempt to store what waits for it.
func (s *Service) flush(ctx context.Context) {
	s.unrecorded.mu.Lock()
	rows := make([]bothy.Sandbox, 0, len(s.unrecorded.rows))
	for _, r := range s.unrecorded.rows {
		rows = append(rows, r.sb)
	}
	s.unrecorded.mu.Unlock()
	for i := range rows {
		if err := s.put(ctx, &rows[i]); err != nil {
			s.log.Error("the state of a sandbox could not be stored", "sandbox", rows[i].ID, "state", rows[i].State, "error", err)
		}
	}
	if err := s.sendEvents(ctx); err != nil {
		s.log.Error("the last events could not be stored", "error", err)
	}
}
