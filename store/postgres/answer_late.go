package postgres

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Requests may complete while the database is unreachable. Their reservations would stay, and a
// client that repeats the request would be told for a day that it is in progress. So their
// outcomes are kept in memory until the database is back.

// maxLate limits the number of outcomes in memory, and maxLateBytes their bodies.
const maxLate, maxLateBytes = 10_000, 64 << 20

// settleTime is how long outcomes may be written at a time: the lease must be renewed.
const settleTime = 2 * time.Second

type answerKey struct{ project, key string }

// lateEnd is an outcome: the answer, or nil if the key is to be released.
type lateEnd struct{ answer *store.Answer }

func (e lateEnd) bytes() int64 {
	if e.answer == nil {
		return 0
	}
	return int64(len(e.answer.Body))
}

// later keeps the outcome of a reservation if the database is unreachable, and returns any
// other error.
func (s *Store) later(err error, k answerKey, e lateEnd) error {
	if bothy.ErrorCode(err) != bothy.CodeStore || s.lease.gone.Load() {
		return err
	}
	a := &s.answers
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.late) >= maxLate || a.lateBytes+e.bytes() > maxLateBytes {
		return err
	}
	if a.late == nil {
		a.late = map[answerKey]lateEnd{}
	}
	a.lateBytes += e.bytes() - a.late[k].bytes()
	a.late[k] = e
	return nil
}

// settle writes a pending outcome, if there is one.
func (s *Store) settle(ctx context.Context, k answerKey) error {
	a := &s.answers
	a.mu.Lock()
	e, late := a.late[k]
	if late {
		delete(a.late, k)
		a.lateBytes -= e.bytes()
	}
	a.mu.Unlock()
	switch {
	case !late:
		return nil
	case e.answer == nil:
		return s.ForgetAnswer(ctx, k.project, k.key)
	}
	return s.StoreAnswer(ctx, k.project, k.key, *e.answer)
}

// settleAll writes pending outcomes until the database is unreachable again, or settleTime has
// passed.
func (s *Store) settleAll(ctx context.Context) {
	end := time.Now().Add(settleTime)
	a := &s.answers
	a.mu.Lock()
	all := make([]answerKey, 0, len(a.late))
	for k := range a.late {
		all = append(all, k)
	}
	a.mu.Unlock()
	for _, k := range all {
		if err := s.settle(ctx, k); err != nil {
			s.log.Error("cannot store the response to a request with an Idempotency-Key", "error", err)
		}
		a.mu.Lock()
		_, again := a.late[k]
		a.mu.Unlock()
		if again || ctx.Err() != nil || time.Now().After(end) {
			return
		}
	}
}
