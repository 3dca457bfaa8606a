package lifecycle

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// usage tells whether a sandbox is in use from outside.
type usage struct {
	mu     sync.Mutex
	active map[string]int // what holds it awake, and how often
	last   time.Time
	// falling is set while the sandbox is being paused, under its lock: nobody is
	// let in any more.
	falling bool
	// cpu is what the machine had used at the last look, in seconds.
	cpu     float64
	cpuAt   time.Time
	holders []string
}

func (u *usage) touch(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = now
}

// What holds a sandbox awake from outside, in the words of the API.
const (
	heldByRequest    = "request"
	heldByConnection = "connection"
	heldByTerminal   = "terminal"
)

// errFallingAsleep says that a sandbox is being paused: whoever has its lock finds
// out what has become of it.
var errFallingAsleep = errors.New("the sandbox is being paused")

// begin notes that something holds it awake until end is called. Calling end
// again does nothing. The error is errFallingAsleep.
func (u *usage) begin(c bothy.Clock, what string) (end func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.falling {
		return nil, errFallingAsleep
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
func (u *usage) inUse() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.active) > 0
}

func (u *usage) isFalling() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.falling
}

// fall lets nobody in any more. What has begun goes on.
func (u *usage) fall() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.falling = true
}

// fallIdle is fall if it has not been in use for as long as idle, and reports that.
func (u *usage) fallIdle(now time.Time, idle time.Duration) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.active) > 0 || now.Sub(u.last) < idle {
		return false
	}
	u.falling = true
	return true
}

// stayUp undoes fall.
func (u *usage) stayUp() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.falling = false
}

// idleCPU is the part of one processor below which a sandbox does nothing. A
// kernel at rest stays far below it.
const idleCPU = 0.05

// look finds out what holds a sandbox awake. Whatever does also moves the time
// since when it has been idle.
func (s *machines) look(ctx context.Context, l *live) (holders []string, idleSince time.Time) {
	now := s.o.Clock.Now()
	commands := 0
	if st, err := s.guestStats(ctx, l); err == nil {
		commands = st.Commands
	}
	stats, err := l.machine.Stats(ctx)
	u := &l.use
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
