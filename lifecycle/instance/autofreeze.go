package instance

import (
	"context"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// An idle machine is frozen so that its kernel's timers cost nothing, and thawed on first
// use in under a millisecond. The sandbox still reports as running. Machines with any user
// process, even a sleeping one, are never frozen, since the process could observe the gap.

const (
	// freezeAfter is how long a machine must be unused before it is checked. Kernel and
	// guest give back memory in that time.
	freezeAfter = 6 * time.Second
	// freezeConfirm is how long after the first check the second one comes: in between
	// the machine must have done nothing.
	freezeConfirm = time.Second
	// freezeRetry and freezeRetryMax are the shortest and the longest pause before a
	// machine that may not be frozen is checked again.
	freezeRetry    = 10 * time.Second
	freezeRetryMax = 5 * time.Minute
	// freezeTimeout limits one freeze or thaw.
	freezeTimeout = 10 * time.Second
)

// autofreeze tracks whether a machine is frozen, and how many users need it running.
type autofreeze struct {
	mu     sync.Mutex
	users  int
	wakes  int // how often it has been used
	frozen bool
	closed bool // no more checks
	// suspended is set while it is frozen because this host's machines must not run.
	suspended bool
	stop      func() bool
	// owned is set once the machine belongs to a sandbox, and ran once code may have run in its
	// interpreters: from then on they are user processes.
	owned, ran bool
	// last is when it was last used.
	last time.Time
	// before is the last reading, and wait the pause until the next check.
	before *reading
	wait   time.Duration
	guest  bothy.GuestStats
}

// reading is what a machine had done at some moment.
type reading struct {
	at  time.Time
	cpu float64
	net bothy.NetworkCounters
}

// Wake thaws the machine if it is frozen, and keeps it from being frozen until
// release is called. Calling release again does nothing.
func (s *Machines) Wake(l *Instance) (release func(), err error) {
	st := &l.still
	st.mu.Lock()
	defer st.mu.Unlock()
	if s.suspended.Load() {
		return nil, suspendedError(l.ID)
	}
	if st.frozen {
		if err := s.thaw(l); err != nil {
			return nil, err
		}
	}
	st.users++
	st.wakes++
	st.before, st.wait = nil, 0
	return sync.OnceFunc(func() {
		now := s.o.Clock.Now()
		st.mu.Lock()
		defer st.mu.Unlock()
		st.users--
		st.last = now
	}), nil
}

// thaw resumes a frozen machine. The caller holds st.mu.
func (s *Machines) thaw(l *Instance) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Patience(l.Engine, freezeTimeout))
	defer cancel()
	if err := l.Machine.Thaw(ctx); err != nil {
		return bothy.Errorf(bothy.CodeEngine, "cannot thaw sandbox %s", l.ID).
			WithHint("Try again; if that does not help, terminate it.").Because(err)
	}
	l.still.frozen = false
	l.still.last = s.o.Clock.Now()
	s.checkLater(l, freezeAfter)
	return nil
}

// Hold records a user of the sandbox, and keeps its machine running until end is called.
func (s *Machines) Hold(l *Instance, what string) (end func(), err error) {
	ended, err := l.Activity.begin(s.o.Clock, what)
	if err != nil {
		return nil, err
	}
	release, err := s.Wake(l)
	if err != nil {
		ended()
		return nil, err
	}
	s.watchAnswers(l)
	return func() { ended(); release() }, nil
}

// GuestStats returns the guest's statistics, or the last ones from before it was frozen. It
// neither thaws the machine nor counts as use.
func (s *Machines) GuestStats(ctx context.Context, l *Instance) (bothy.GuestStats, error) {
	st := &l.still
	st.mu.Lock()
	if st.frozen || st.suspended {
		defer st.mu.Unlock()
		return st.guest, nil
	}
	st.users++
	st.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.o.Patience(l.Engine, statsPatience))
	g, err := l.Guest.Stats(ctx)
	cancel()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.users--
	return g, err
}

// WatchIdleness starts checking whether a machine can be frozen. owned says whether it belongs
// to a sandbox, and ran whether its interpreters may have run code.
func (s *Machines) WatchIdleness(l *Instance, owned, ran bool) {
	st := &l.still
	st.mu.Lock()
	defer st.mu.Unlock()
	st.owned, st.ran = owned, st.ran || ran
	st.last = s.o.Clock.Now()
	s.checkLater(l, freezeAfter)
}

// stopAutofreeze ends the checks, and leaves the machine frozen or running.
func (l *Instance) stopAutofreeze() {
	st := &l.still
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	if st.stop != nil {
		st.stop()
	}
}

// checkLater schedules the next check; st.mu is held.
func (s *Machines) checkLater(l *Instance, d time.Duration) {
	st := &l.still
	if st.stop != nil {
		st.stop()
	}
	if !st.closed {
		st.stop = s.o.Clock.AfterFunc(d, func() { s.check(l) })
	}
}

// check freezes a machine that did nothing since the last check, and otherwise schedules
// another check.
func (s *Machines) check(l *Instance) {
	ctx, cancel := context.WithTimeout(s.o.Background, s.o.Patience(l.Engine, freezeTimeout))
	defer cancel()
	st := &l.still
	st.mu.Lock()
	idle := s.o.Clock.Now().Sub(st.last)
	if st.closed || st.frozen || st.suspended || st.users > 0 || idle < freezeAfter {
		if !st.frozen {
			s.checkLater(l, max(freezeAfter-idle, freezeConfirm))
		}
		st.mu.Unlock()
		return
	}
	last, before := st.last, st.before
	st.mu.Unlock()
	now, g, err := s.read(ctx, l)
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.closed || ctx.Err() != nil:
	case err != nil || !st.mayFreeze(g):
		// A user process is running, or the guest does not respond.
		st.before = nil
		st.wait = min(max(2*st.wait, freezeRetry), freezeRetryMax)
		s.checkLater(l, st.wait)
	case before == nil || !now.quietSince(*before):
		st.before = &now
		s.checkLater(l, freezeConfirm)
	case st.users > 0 || st.suspended || st.last != last:
		s.checkLater(l, freezeAfter)
	default:
		st.guest = g
		s.freeze(ctx, l)
	}
}

// freeze freezes a machine; st.mu is held.
func (s *Machines) freeze(ctx context.Context, l *Instance) {
	st := &l.still
	st.before = nil
	l.KeptConns.CloseIdle()
	err := l.Machine.Freeze(ctx)
	if err == nil {
		st.frozen = true
		return
	}
	s.o.Log.Debug("cannot freeze an idle machine", "sandbox", l.ID, "error", err)
	if err := l.Machine.Thaw(ctx); err != nil {
		s.o.Log.Warn("cannot thaw a machine", "sandbox", l.ID, "error", err)
	}
	s.checkLater(l, freezeRetryMax)
}

// mayFreeze reports whether there are no user processes. A machine that no sandbox owns has
// none.
func (st *autofreeze) mayFreeze(g bothy.GuestStats) bool {
	if !st.owned {
		return true
	}
	others := g.Processes - 1 // except the guest itself
	if !st.ran {
		others -= g.Interpreters
	}
	return g.Processes > 0 && others <= 0 && g.Commands == 0
}

// read takes a reading.
func (s *Machines) read(ctx context.Context, l *Instance) (now reading, g bothy.GuestStats, err error) {
	if g, err = s.GuestStats(ctx, l); err != nil {
		return now, g, err
	}
	m, err := l.Machine.Stats(ctx)
	return reading{s.o.Clock.Now(), m.CPUSeconds, l.Gateway.Counters()}, g, err
}

// quietSince reports whether a machine was idle since an earlier reading.
func (now reading) quietSince(before reading) bool {
	passed := now.at.Sub(before.at).Seconds()
	return passed > 0 && (now.cpu-before.cpu)/passed <= idleCPU && now.net == before.net
}

// RanCode records that code may have run in the machine's interpreters.
func (l *Instance) RanCode() {
	l.still.mu.Lock()
	defer l.still.mu.Unlock()
	l.still.ran = true
}

// CodeRan reports whether RanCode was called.
func (l *Instance) CodeRan() bool {
	l.still.mu.Lock()
	defer l.still.mu.Unlock()
	return l.still.ran
}
