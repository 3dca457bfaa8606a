package code

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// startTime bounds the start of a kernel.
const startTime = 2 * time.Minute

// Request is a piece of code.
type Request struct {
	Code string
	// Env is set while the code runs.
	Env map[string]string
	// Timeout interrupts the code; 0 means never.
	Timeout time.Duration
	// Quiet code is not counted and its results are not shown.
	Quiet bool
}

// errDied is returned by a kernel whose process has ended.
var errDied = errors.New("the kernel has died")

// kernel is a process that runs code.
type kernel interface {
	// run runs a piece of code to its end. Only one runs at a time. Quiet code does not count
	// and displays nothing.
	run(code string, quiet bool, fn func(Output) error) (Result, error)
	// interrupt stops the code that runs, as Ctrl-C does.
	interrupt()
	// kill ends the process. A pending run returns errDied.
	kill()
	// died returns what is known about how the process ended, and false while it lives.
	died() (Result, bool)
}

// Run runs code and calls fn with its results. When ctx ends, or fn fails, the
// code is interrupted.
func (c *Context) Run(ctx context.Context, req Request, fn func(Output) error) (Result, error) {
	p := c.arrive(req)
	defer c.leave(p)
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-c.ended:
		return Result{}, c.deletedError()
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
	c.takeTurn(p)
	k, err := c.ready(ctx)
	if err != nil {
		return Result{}, err
	}
	if req.Code == "" { // the caller wants to warm the kernel
		_, err := k.run(dialects[c.Language].nothing, true, func(Output) error { return nil })
		if errors.Is(err, errDied) {
			return c.kernelDied(k, Result{}), nil
		}
		return Result{}, err
	}
	c.mu.Lock()
	c.fresh = false
	c.mu.Unlock()
	restore := c.setEnv(k, req.Env)
	defer restore()
	w := newWatchdog(k)
	if !c.begin(p, w) {
		return Result{Error: &bothy.CodeError{Name: "KeyboardInterrupt", Value: "the code was interrupted before it began"}}, nil
	}
	return c.watch(ctx, w, req, fn)
}

func (c *Context) deletedError() error {
	return bothy.Errorf(bothy.CodeContextNotFound, "the context %q was deleted", c.ID)
}

// watch runs code and enforces its time limit and its caller's cancellation.
func (c *Context) watch(ctx context.Context, w *watchdog, req Request, fn func(Output) error) (Result, error) {
	k := w.k
	stop := context.AfterFunc(ctx, w.bite)
	defer stop()
	if req.Timeout > 0 {
		t := time.AfterFunc(req.Timeout, w.timeUp)
		defer t.Stop()
	}
	defer w.rest()
	start := time.Now()
	var failed error
	res, err := k.run(req.Code, req.Quiet, func(o Output) error {
		if failed == nil {
			if failed = fn(o); failed != nil {
				w.bite()
			}
		}
		return nil // later output is discarded
	})
	res.Duration = time.Since(start)
	if errors.Is(err, errDied) {
		res, err = c.kernelDied(k, res), nil
	}
	w.note(&res, req.Timeout)
	switch {
	case failed != nil:
		err = failed
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	return res, err
}

// kernelDied reports that a kernel died while it ran code. The next piece of code
// gets a new one.
func (c *Context) kernelDied(k kernel, res Result) Result {
	end, _ := k.died()
	res.OOMKilled, res.Hint, res.ExitCode = end.OOMKilled, end.Hint, end.ExitCode
	if res.Error = end.Error; res.Error == nil {
		res.Error = &bothy.CodeError{Name: "KernelDied", Value: "the process that runs the code has ended; its variables are gone"}
	}
	select {
	case <-c.ended:
		res.Error.Value = "the context was deleted while the code ran"
	default:
	}
	c.drop(k)
	return res
}

// drop forgets a kernel.
func (c *Context) drop(k kernel) {
	k.kill()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kernel == k {
		c.kernel = nil
	}
}

// stop ends the kernel, if there is one.
func (c *Context) stop() {
	c.mu.Lock()
	k := c.kernel
	c.mu.Unlock()
	if k != nil {
		c.drop(k)
	}
}

// Restart resets the context.
func (c *Context) Restart() { c.stop() }

// ready returns a live kernel that has the sandbox's identity. The caller has the turn.
func (c *Context) ready(ctx context.Context) (kernel, error) {
	c.mu.Lock()
	k := c.kernel
	c.mu.Unlock()
	if k != nil {
		if _, dead := k.died(); dead {
			c.drop(k)
			k = nil
		}
	}
	id, err := c.m.host.Identity()
	if err != nil {
		return nil, err
	}
	if k == nil {
		ctx, cancel := context.WithTimeout(ctx, startTime)
		defer cancel()
		if k, err = c.m.start(ctx, c.Language, c.Cwd, id); err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.kernel, c.fresh, c.adopted = k, true, id.Generation
		c.mu.Unlock()
		select {
		case <-c.ended: // deleted meanwhile
			c.drop(k)
			return nil, c.deletedError()
		default:
		}
		return k, nil
	}
	c.adopt(k, id)
	return k, nil
}

// adopt updates a kernel that was started before the sandbox got its identity. An unused one is
// also reseeded; in a used one, the program's own state is left alone.
func (c *Context) adopt(k kernel, id Identity) {
	c.mu.Lock()
	known, fresh := c.adopted, c.fresh
	c.adopted = id.Generation
	c.mu.Unlock()
	if known == id.Generation {
		return
	}
	d := dialects[c.Language]
	var text []string
	if len(id.Own) > 0 {
		text = append(text, d.export(id.Own))
	}
	if fresh && d.reseed != "" {
		text = append(text, d.reseed)
	}
	if len(text) > 0 {
		_, _ = k.run(strings.Join(text, "\n"), true, func(Output) error { return nil })
	}
}

// Adopted updates the unused kernels when the sandbox has got a new identity, so that the first
// piece of code does not wait for it. The others are updated before their next piece of code.
func (m *Manager) Adopted() {
	contexts := m.List()
	if len(contexts) == 0 {
		return
	}
	id, err := m.host.Identity()
	if err != nil {
		return
	}
	for _, c := range contexts {
		c.mu.Lock()
		k, fresh := c.kernel, c.fresh
		c.mu.Unlock()
		if k == nil || !fresh {
			continue
		}
		go func() {
			select {
			case c.turn <- struct{}{}:
				defer func() { <-c.turn }()
				if _, dead := k.died(); !dead {
					c.adopt(k, id)
				}
			default: // the holder of the turn will do it
			}
		}()
	}
}

// setEnv sets variables for one piece of code, and returns the code that restores them.
func (c *Context) setEnv(k kernel, env map[string]string) (restore func()) {
	if len(env) == 0 {
		return func() {}
	}
	d := dialects[c.Language]
	discard := func(Output) error { return nil }
	_, _ = k.run(d.save(env), true, discard)
	return func() {
		if _, dead := k.died(); !dead {
			_, _ = k.run(d.restore(), true, discard)
		}
	}
}
