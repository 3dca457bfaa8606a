package instance

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
)

// A host whose lease is in doubt freezes all of its machines, in use or not. Callers get an
// error with this retry time.

const suspendedRetry = 5 * time.Second

func suspendedError(id string) error {
	e := bothy.Errorf(bothy.CodeStore, "the host of sandbox %s has lost its connection to the database; its sandboxes are frozen until it is back", id).
		WithHint("Try again in a few seconds.")
	e.RetryAfter = suspendedRetry
	return e
}

// Suspend prevents thawing until Unsuspend.
func (s *Machines) Suspend() { s.suspended.Store(true) }

// Unsuspend allows thawing again. ApplySuspension then thaws the machines that it froze.
func (s *Machines) Unsuspend() { s.suspended.Store(false) }

// Suspended reports whether machines are suspended.
func (s *Machines) Suspended() bool { return s.suspended.Load() }

// ApplySuspension freezes a machine while machines are suspended, and otherwise thaws one that it froze.
func (s *Machines) ApplySuspension(ctx context.Context, l *Instance) error {
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

// IsSuspended reports whether a machine is frozen by ApplySuspension.
func (l *Instance) IsSuspended() bool {
	l.still.mu.Lock()
	defer l.still.mu.Unlock()
	return l.still.suspended
}
