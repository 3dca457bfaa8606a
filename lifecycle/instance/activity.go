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

// Activity tells whether a sandbox is in use from outside.
type Activity struct {
	mu     sync.Mutex
	active map[string]int // what holds it awake, and how often
	last   time.Time
	// closed is set while the sandbox is being paused, under its lock: new users are
	// rejected.
	closed bool
	// cpu is what the machine had used at the last look, in seconds.
	cpu     float64
	cpuAt   time.Time
	holders []string
}

func (u *Activity) Touch(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = now
}

// What holds a sandbox awake from outside, in the words of the API.
const (
	ByRequest    = "request"
	ByConnection = "connection"
	ByTerminal   = "terminal"
)

// ErrClosed says that a sandbox is being paused: the holder of its lock finds
// out what became of it.
var ErrClosed = errors.New("the sandbox is being paused")

// begin notes that something holds it awake until end is called. Calling end
// again does nothing. The error is errFallingAsleep.
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

// inUse reports whether something holds it awake.
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

// CloseIfIdle is Close if it has not been in use for as long as idle, and reports that.
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

// idleCPU is the part of one processor below which a sandbox does nothing. A
// kernel at rest stays far below it.
const idleCPU = 0.05

// Observe finds out what holds a sandbox awake. Whatever does also moves the time
// since when it has been idle.
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
