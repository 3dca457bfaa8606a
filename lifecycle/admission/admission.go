// Package admission decides whether another sandbox may start now, by its project's plan, the
// host's memory, and the number of running and starting sandboxes. A request that must wait
// joins a queue in which projects take turns.
package admission

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/bothy-dev/bothy"
)

// Plans returns what each project may use. The service calls it for itself, so it checks no
// scope.
type Plans interface {
	Plan(ctx context.Context, projectID string) (bothy.Plan, error)
}

// Options are the limits of a host.
type Options struct {
	// Plans limit what projects use. Optional.
	Plans Plans
	// Cluster is the other hosts.
	Cluster Cluster
	// MaxSandboxes limits running sandboxes. 0 means no limit.
	MaxSandboxes int
	// MinFreeMemoryMB is the memory that the host keeps free. 0 means no limit.
	MinFreeMemoryMB int
	// Wait is how long a request waits when the host is at capacity; 0 refuses it at once.
	Wait time.Duration
	// StartsAtOnce limits concurrent starts. 0 means a number that suits the host's processors.
	StartsAtOnce int
	// FreeMemoryMB returns the available memory; nil asks the host.
	FreeMemoryMB func() int
	Clock        bothy.Clock
	// Background ends with the service.
	Background context.Context
}

// Cluster is what admission asks about other hosts.
type Cluster interface {
	// Shared reports whether there are other hosts. Then the store counts the starts on all, and
	// PlanExceeded is told when there are too many.
	Shared() bool
	// LiveOf counts the running sandboxes of a project on other hosts.
	LiveOf(ctx context.Context, project string) (int, error)
}

// Host is what admission needs from the service.
type Host interface {
	// Shrink destroys one ready machine, and reports whether there was one.
	Shrink() bool
	// SlowestStart returns how long to wait for starts that take d at full speed.
	SlowestStart(d time.Duration) time.Duration
	// Started is called when a sandbox is no longer starting. It must not block.
	Started()
}

// Controller admits sandboxes.
type Controller struct {
	o    Options
	host Host

	mu sync.Mutex
	// running maps the ids of running sandboxes to their projects.
	running map[string]string
	queue   queue
	// starting counts reservations, and startingIn those of each project.
	starting   int
	startingIn map[string]int
	// creates limits the rate at which each project creates sandboxes.
	creates map[string]*rate.Limiter
	// tooFast is until when projects may create none, according to the store.
	tooFast map[string]time.Time
	closed  bool
}

// New returns a controller.
func New(o Options, host Host) *Controller {
	return &Controller{o: o, host: host, running: map[string]string{}, startingIn: map[string]int{}, creates: map[string]*rate.Limiter{}, tooFast: map[string]time.Time{}}
}

// Close refuses all further requests, and those in the queue.
func (c *Controller) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.queue.waiting > 0 {
		c.queue.next().answer <- admitted{err: shuttingDown()}
	}
}

// Running counts a running sandbox. It takes over the reservation, which is nil for a sandbox
// that was running before the server.
func (c *Controller) Running(id, project string, r *Reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[id] = project
	if r != nil {
		r.leave()
	}
}

// Remove stops counting a sandbox. It does not admit another; see Admit.
func (c *Controller) Remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, id)
}

// Admit admits queued requests as capacity allows.
func (c *Controller) Admit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.admit()
}

// RunningIn counts the running and starting sandboxes of a project.
func (c *Controller) RunningIn(project string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runningIn(project)
}

// Waiting counts the queued requests.
func (c *Controller) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.waiting
}

// Busy counts the queued and starting requests.
func (c *Controller) Busy() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.waiting + c.starting
}
