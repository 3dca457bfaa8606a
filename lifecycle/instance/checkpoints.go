package instance

import (
	"context"
	"sync"
	"time"
)

// Checkpoints knows when the next checkpoint of a sandbox is due, and what the last one has.
type Checkpoints struct {
	mu   sync.Mutex
	stop func() bool // nil where none are taken
	// saved is until when all that happened is saved.
	saved time.Time
	rest  Rest
	// failures counts those since the last one that was taken.
	failures int
	// held counts who wants none to be taken for now.
	held int
}

// Rest is how a machine was when a snapshot of it was about to be taken.
type Rest struct {
	// quiet says that no process inside could do anything unless the machine was used.
	quiet bool
	// wakes is how often it had been used.
	wakes int
}

// Rest looks whether a machine does nothing, before a snapshot of it is taken.
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

// RestedSince reports whether a machine has done nothing since a snapshot of it was taken, which
// itself was one use.
func (l *Instance) RestedSince(r Rest) bool {
	l.still.mu.Lock()
	defer l.still.mu.Unlock()
	return r.quiet && l.still.wakes == r.wakes+1
}

// Start begins to take checkpoints of what was saved at a time.
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

// Again arms the timer once more, unless no more checkpoints are to be taken.
func (c *Checkpoints) Again(arm func() (stop func() bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		c.stop()
		c.stop = arm()
	}
}

// Stop ends it.
func (c *Checkpoints) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		c.stop()
	}
	c.stop = nil
}

// Took notes that a checkpoint was taken of a machine that was as rest says before.
func (c *Checkpoints) Took(at time.Time, rest Rest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved, c.rest, c.failures = at, rest, 0
}

// Save notes that until a time nothing has happened that is not saved.
func (c *Checkpoints) Save(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved, c.failures = at, 0
}

// Fail counts a failure, and returns how many there were in a row.
func (c *Checkpoints) Fail() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures++
	return c.failures
}

// Hold has none be taken until it is let go.
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

// Held reports whether none is to be taken for now.
func (c *Checkpoints) Held() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held > 0
}

// Rest is how the machine was before the last checkpoint.
func (c *Checkpoints) Rest() Rest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rest
}

// Saved is until when all that happened is saved; zero where no checkpoints are taken.
func (c *Checkpoints) Saved() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop == nil {
		return time.Time{}
	}
	return c.saved
}

// Discount takes so many seconds of the processor for work that is not the sandbox's.
func (u *Activity) Discount(seconds float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if seconds > 0 {
		u.cpu += seconds
	}
}
