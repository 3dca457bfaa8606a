// Package admission answers whether one more sandbox may start now: by the plan of its
// project, the host's memory, and how many run and start already. A request that may not
// start yet waits in a queue, in which projects take turns.
package admission

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/bothy-dev/bothy"
)

// Plans knows what each project may use. It is asked by the service itself, so
// it checks no scope.
type Plans interface {
	Plan(ctx context.Context, projectID string) (bothy.Plan, error)
}

// Options say what a host admits.
type Options struct {
	// Plans bound what projects use. Optional.
	Plans Plans
	// Elsewhere counts the sandboxes of a project that run on other hosts. Where it is set,
	// the store counts the starts on all hosts, and tells Beyond. Optional.
	Elsewhere func(ctx context.Context, projectID string) (int, error)
	// MaxSandboxes bounds the sandboxes that run. 0 means no bound.
	MaxSandboxes int
	// MinFreeMemoryMB is what the host keeps for itself. 0 means no bound.
	MinFreeMemoryMB int
	// Wait is how long a request waits where the host is at capacity; 0 refuses it at
	// once.
	Wait time.Duration
	// StartsAtOnce bounds the sandboxes that are starting. 0 means a number that suits
	// the host's processors.
	StartsAtOnce int
	// FreeMemoryMB tells what the host has left; nil asks the host.
	FreeMemoryMB func() int
	Clock        bothy.Clock
	// Background ends with the service.
	Background context.Context
}

// Host is what admission asks of the service.
type Host interface {
	// Shrink ends one thing that is held ready, and reports whether there was any.
	Shrink() bool
	// SlowestStart is how long to wait for starts that take d at full speed.
	SlowestStart(d time.Duration) time.Duration
	// Started is told that a sandbox is no longer starting. It must not block.
	Started()
}

// Controller admits sandboxes.
type Controller struct {
	o    Options
	host Host

	mu sync.Mutex
	// running are the projects of the sandboxes that run, by the sandboxes' ids.
	running map[string]string
	queue   queue
	// starting counts reservations, and startingIn those of each project.
	starting   int
	startingIn map[string]int
	// creates are the rates at which projects make sandboxes.
	creates map[string]*rate.Limiter
	// tooFast is until when projects may make none, as the store has said.
	tooFast map[string]time.Time
	closed  bool
}

// New makes a controller.
func New(o Options, host Host) *Controller {
	return &Controller{o: o, host: host, running: map[string]string{}, startingIn: map[string]int{}, creates: map[string]*rate.Limiter{}, tooFast: map[string]time.Time{}}
}

// Close refuses every request from now on, also those that wait.
func (c *Controller) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.queue.waiting > 0 {
		c.queue.next().answer <- admitted{err: shuttingDown()}
	}
}

// Running counts a sandbox that runs. It takes over the reservation, which is nil for
// a sandbox that ran before the server.
func (c *Controller) Running(id, project string, r *Reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[id] = project
	if r != nil {
		r.leave()
	}
}

// Remove no longer counts a sandbox, and admits no other in its place yet.
func (c *Controller) Remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, id)
}

// Admit admits those who wait, as far as there is room.
func (c *Controller) Admit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.admit()
}

// RunningIn counts the sandboxes of a project that run or are starting.
func (c *Controller) RunningIn(project string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runningIn(project)
}

// Waiting counts the requests that wait.
func (c *Controller) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.waiting
}

// Busy counts the requests that wait or are starting.
func (c *Controller) Busy() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.waiting + c.starting
}
