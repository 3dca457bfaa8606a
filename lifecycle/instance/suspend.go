package instance

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
)

// A host that may have been given up by others freezes all of its machines, in use or not,
// until it knows. Who needs one of them meanwhile is told to come back.

const suspendedRetry = 5 * time.Second

func suspendedError(id string) error {
	e := bothy.Errorf(bothy.CodeStore, "the host of sandbox %s has lost touch with the database, and its sandboxes stand still until it has it again", id).
		WithHint("Try again in a few seconds.")
	e.RetryAfter = suspendedRetry
	return e
}

// Suspend has no machine woken any more, until Unsuspend.
func (s *Machines) Suspend() { s.suspended.Store(true) }

// Unsuspend lets machines be woken again. Those that were frozen by Hush are thawed by it.
func (s *Machines) Unsuspend() { s.suspended.Store(false) }

// Suspended reports whether they may not.
func (s *Machines) Suspended() bool { return s.suspended.Load() }

// Hush freezes a machine, or, where machines may run again, thaws one that it has frozen.
func (s *Machines) Hush(ctx context.Context, l *Instance) error {
	st := &l.still
	st.mu.Lock()
	defer st.mu.Unlock()
	switch suspended := s.suspended.Load(); {
	case suspended == st.suspended || st.frozen:
		return nil
	case suspended:
		err := l.Machine.Freeze(ctx)
		st.suspended = err == nil
		return err
	}
	if err := l.Machine.Thaw(ctx); err != nil {
		return err
	}
	st.suspended = false
	s.checkLater(l, freezeAfter)
	return nil
}

// Hushed reports whether a machine stands still because Hush froze it.
func (l *Instance) Hushed() bool {
	l.still.mu.Lock()
	defer l.still.mu.Unlock()
	return l.still.suspended
}
