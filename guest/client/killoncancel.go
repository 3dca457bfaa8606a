package client

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
)

// attended follows a command for a caller who may leave. In that case the command and everything
// it started are killed, even if its start has not been confirmed yet: the call to the guest
// outlives the caller until the process id is known.
//
// The kill is a separate call. Tying it to the connection would kill commands when their sandbox
// is paused, or their server restarted.
type attended struct {
	c      *Client
	cancel context.CancelFunc // ends the call to the guest

	mu     sync.Mutex
	pid    int
	left   bool
	killed bool
	once   sync.Once
}

// killOnCancel calls follow, which starts a command and follows it. When ctx ends
// before that returns, the command is killed.
func (c *Client) killOnCancel(ctx context.Context, follow func(ctx context.Context, started func(pid int)) error) error {
	if err := ctx.Err(); err != nil {
		return callError(ctx, err)
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	a := &attended{c: c, cancel: cancel}
	stop := context.AfterFunc(ctx, a.leave)
	err := follow(inner, a.started)
	if stop() {
		return err
	}
	if err != nil {
		a.end()
	}
	if a.hasKilled() || errors.Is(err, context.Canceled) {
		return cancelled(ctx)
	}
	return err // it had ended, or could not be started
}

// cancelled adds what is known about a command whose caller left.
func cancelled(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return callError(ctx, ctx.Err())
	}
	return bothy.Errorf(bothy.CodeCommandCancelled, "the command was killed because its request was cancelled").
		WithHint("To keep a command running when its caller leaves, start it with keep_running, or in the background.").
		Because(ctx.Err())
}

func (a *attended) started(pid int) {
	a.mu.Lock()
	a.pid = pid
	left := a.left
	a.mu.Unlock()
	if left {
		go a.end()
	}
}

// leave is called when the caller has left.
func (a *attended) leave() {
	a.mu.Lock()
	a.left = true
	known := a.pid != 0
	a.mu.Unlock()
	if known {
		a.end()
		return
	}
	time.AfterFunc(cleanUp, a.end)
}

// end kills the command and then ends the call to the guest. It returns when both are done, even
// if another call does it.
func (a *attended) end() {
	a.once.Do(func() {
		a.mu.Lock()
		pid := a.pid
		a.killed = pid != 0
		a.mu.Unlock()
		if pid != 0 {
			a.c.kill(pid)
		}
		a.cancel()
	})
}

func (a *attended) hasKilled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.killed
}

// kill ends a command that is no longer followed.
func (c *Client) kill(pid int) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanUp)
	defer cancel()
	_ = c.Signal(ctx, pid, int(syscall.SIGKILL)) // it may have ended on its own
}
