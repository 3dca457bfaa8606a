package instance

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// Activity tracks whether a sandbox is in use from outside.
type Activity struct {
	mu     sync.Mutex
	active map[string]int // what keeps it active, with counts
	last   time.Time
	// closed is set while the sandbox is being paused, under its lock: new users are rejected.
	closed bool
	// cpu is the machine's CPU time in seconds at the last observation.
	cpu     float64
	cpuAt   time.Time
	holders []string
}

func (u *Activity) Touch(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = now
}

// What keeps a sandbox active from outside, as named in the API.
const (
	ByRequest    = "request"
	ByConnection = "connection"
	ByTerminal   = "terminal"
)

// ErrClosed means that a sandbox is being paused. The next holder of its lock sees the outcome.
var ErrClosed = errors.New("the sandbox is being paused")

// begin records a user until end is called. It returns ErrClosed during a pause. Calling end
// again does nothing.
func (u *Activity) begin(c bothy.Clock, what string) (end func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil, ErrClosed
	}
	if u.active == nil {
		u.active = map[string]int{}
	}
	u.active[what]++
	return sync.OnceFunc(func() {
		now := c.Now()
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.active[what]--; u.active[what] == 0 {
			delete(u.active, what)
		}
		u.last = now
	}), nil
}

// inUse reports whether the sandbox has users.
func (u *Activity) inUse() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.active) > 0
}

func (u *Activity) isFalling() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.closed
}

// Close rejects new users; calls in flight continue.
func (u *Activity) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
}

// CloseIfIdle is Close if the sandbox has been idle for the given time, and reports whether it
// was.
func (u *Activity) CloseIfIdle(now time.Time, idle time.Duration) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.active) > 0 || now.Sub(u.last) < idle {
		return false
	}
	u.closed = true
	return true
}

// Reopen undoes Close.
func (u *Activity) Reopen() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = false
}

// idleCPU is the share of one processor below which a sandbox counts as idle. An idle kernel
// uses far less.
const idleCPU = 0.05

// Observe returns what keeps a sandbox active, and since when it has been idle.
func (s *Machines) Observe(ctx context.Context, l *Instance) (holders []string, idleSince time.Time) {
	now := s.o.Clock.Now()
	commands := 0
	if st, err := s.GuestStats(ctx, l); err == nil {
		commands = st.Commands
	}
	stats, err := l.Machine.Stats(ctx)
	u := &l.Activity
	u.mu.Lock()
	defer u.mu.Unlock()
	holders = slices.Sorted(maps.Keys(u.active))
	if commands > 0 {
		holders = append(holders, "command")
	}
	if err == nil {
		if d := now.Sub(u.cpuAt).Seconds(); !u.cpuAt.IsZero() && d > 0 && (stats.CPUSeconds-u.cpu)/d > idleCPU {
			holders = append(holders, "cpu")
		}
		u.cpu, u.cpuAt = stats.CPUSeconds, now
	}
	if len(holders) > 0 {
		u.last = now
	}
	u.holders = holders
	return holders, u.last
}
