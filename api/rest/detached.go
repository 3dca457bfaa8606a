package rest

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
)

// rejoinTime is how long a terminal whose connection broke can be joined again before it is hung
// up.
const rejoinTime = time.Minute

// detached are the terminals that currently have no connection.
type detached struct {
	mu     sync.Mutex
	timers map[terminalKey]*time.Timer
}

type terminalKey struct {
	sandbox string
	pid     int
}

// join keeps a terminal from being hung up.
func (d *detached) join(sandbox string, pid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := terminalKey{sandbox, pid}
	if t := d.timers[k]; t != nil {
		t.Stop()
		delete(d.timers, k)
	}
}

// leave calls hangUp after a while, unless the terminal is joined before.
func (d *detached) leave(sandbox string, pid int, after time.Duration, hangUp func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timers == nil {
		d.timers = map[terminalKey]*time.Timer{}
	}
	k := terminalKey{sandbox, pid}
	if t := d.timers[k]; t != nil {
		t.Stop()
	}
	d.timers[k] = time.AfterFunc(after, func() {
		d.join(sandbox, pid)
		hangUp()
	})
}

// detach leaves a terminal to be joined again.
func (s *handlers) detach(ctx context.Context, sandbox string, term bothy.Terminal) {
	pid := term.PID()
	_ = term.(bothy.Detacher).Detach()
	ctx = context.WithoutCancel(ctx)
	s.detached.leave(sandbox, pid, s.rejoinTime, func() {
		ctx, cancel := context.WithTimeout(ctx, rejoinTime)
		defer cancel()
		_ = s.services.Exec.Signal(ctx, sandbox, pid, int(syscall.SIGHUP)) // it may have ended
	})
}
