package instance

import (
	"context"
	"sync"
	"time"
)

// Checkpoints schedules the checkpoints of a sandbox, and remembers the last one.
type Checkpoints struct {
	mu   sync.Mutex
	stop func() bool // nil if none are taken
	// saved is the time up to which everything is saved.
	saved time.Time
	rest  Rest
	// failures counts consecutive failures.
	failures int
	// held counts callers that want none to be taken for now.
	held int
}

// Rest is the state of a machine just before a snapshot.
type Rest struct {
	// quiet says that no process inside can do anything unless the machine is used.
	quiet bool
	// wakes is how often it had been used.
	wakes int
}

// Rest determines whether a machine is at rest, before a snapshot of it is taken.
func (s *Machines) Rest(ctx context.Context, l *Instance) Rest {
	st := &l.still
	st.mu.Lock()
	r := Rest{wakes: st.wakes}
	st.mu.Unlock()
	g, err := s.GuestStats(ctx, l)
	st.mu.Lock()
	defer st.mu.Unlock()
	r.quiet = err == nil && st.users == 0 && st.mayFreeze(g)
	return r
}

// RestedSince reports whether a machine has done nothing since a snapshot, which itself counts
// as one use.
func (l *Instance) RestedSince(r Rest) bool {
	l.still.mu.Lock()
	defer l.still.mu.Unlock()
	return r.quiet && l.still.wakes == r.wakes+1
}

// Start starts taking checkpoints, with everything saved up to the given time.
func (c *Checkpoints) Start(saved time.Time, arm func() (stop func() bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		c.stop()
	}
	if saved.After(c.saved) {
		c.saved = saved
	}
	c.stop = arm()
}

// Again sets the timer again, unless checkpoints have stopped.
func (c *Checkpoints) Again(arm func() (stop func() bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		c.stop()
		c.stop = arm()
	}
}

// Stop stops taking checkpoints.
func (c *Checkpoints) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		c.stop()
	}
	c.stop = nil
}

// Took records a checkpoint, and the machine's state before it.
func (c *Checkpoints) Took(at time.Time, rest Rest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved, c.rest, c.failures = at, rest, 0
}

// Save records that everything up to a time is saved.
func (c *Checkpoints) Save(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved, c.failures = at, 0
}

// Fail counts a failure, and returns the number of consecutive ones.
func (c *Checkpoints) Fail() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures++
	return c.failures
}

// Failures is the number of consecutive failures.
func (c *Checkpoints) Failures() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failures
}

// Hold prevents checkpoints until letGo is called.
func (c *Checkpoints) Hold() (letGo func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held--
	})
}

// Held reports whether checkpoints are held.
func (c *Checkpoints) Held() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held > 0
}

// Rest is the machine's state before the last checkpoint.
func (c *Checkpoints) Rest() Rest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rest
}

// Saved is the time up to which everything is saved; zero if no checkpoints are taken.
func (c *Checkpoints) Saved() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop == nil {
		return time.Time{}
	}
	return c.saved
}

// Discount excludes CPU time that was not the sandbox's own work.
func (u *Activity) Discount(seconds float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if seconds > 0 {
		u.cpu += seconds
	}
}
