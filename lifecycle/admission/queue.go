package admission

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// startPatience is how long a request waits for others to start.
	startPatience = 60 * time.Second
	// maxWaiting limits the queue; further requests are refused at once.
	maxWaiting = 10000
	// memoryLook is how often free memory is checked for the queue.
	memoryLook = 250 * time.Millisecond
	// retryAfter is when to retry a refused request.
	retryAfter = 5 * time.Second
)

// A Reservation is capacity for one sandbox that is about to start.
type Reservation struct {
	c       *Controller
	project string
	gone    bool // released, or taken over by a running sandbox; guarded by c.mu
}

// Release returns the capacity, unless a running sandbox has taken it over.
func (r *Reservation) Release() {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.leave()
}

// leave is called with c.mu held.
func (r *Reservation) leave() {
	if r.gone {
		return
	}
	r.gone = true
	r.c.starting--
	if r.c.startingIn[r.project]--; r.c.startingIn[r.project] == 0 {
		delete(r.c.startingIn, r.project)
	}
	r.c.admit()
	r.c.host.Started()
}

// queue holds the waiting requests: first come, first served within a project, and the projects
// in turn. It is guarded by Controller.mu.
type queue struct {
	projects []string // the next in turn comes first
	waiters  map[string][]*waiter
	waiting  int
	looking  bool // a timer for memory runs
}

// waiter is a waiting request.
type waiter struct {
	project string
	plan    bothy.Plan
	answer  chan admitted // capacity 1
}

type admitted struct {
	reservation *Reservation
	err         error
}

// Reserve reserves capacity for a sandbox before anything is started. It queues while others
// start or the host is at capacity.
func (c *Controller) Reserve(ctx context.Context, project string) (*Reservation, error) {
	plan, err := c.Plan(ctx, project)
	if err != nil {
		return nil, err
	}
	elsewhere, err := c.elsewhere(ctx, project, plan)
	if err != nil {
		return nil, err
	}
	free := c.freeForSandboxes()
	for free < c.o.MinFreeMemoryMB && c.host.Shrink() {
		free = c.freeForSandboxes()
	}
	slowest := c.host.SlowestStart(startPatience)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, shuttingDown()
	}
	if err := c.checkCount(project, plan, elsewhere); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	full := c.atCapacity(free)
	if full == nil && c.queue.waiting == 0 && c.starting < c.startsAtOnce() {
		r := c.newReservation(project)
		c.mu.Unlock()
		return r, nil
	}
	patience := c.o.Wait
	if bothy.MayGoElsewhere(ctx) {
		patience = 0
	}
	if full == nil {
		// Only other starts are in the way, so it is worth waiting.
		patience = max(patience, slowest)
	}
	if patience <= 0 || c.queue.waiting >= maxWaiting {
		c.mu.Unlock()
		return nil, orBusy(full)
	}
	w := &waiter{project: project, plan: plan, answer: make(chan admitted, 1)}
	c.queue.join(w)
	c.lookForMemory()
	c.mu.Unlock()
	return c.await(ctx, w, patience)
}

// ReserveArrival reserves capacity for a sandbox that moves here, without waiting. The sandbox
// is running already, so its project's plan allows it.
func (c *Controller) ReserveArrival(project string) (*Reservation, error) {
	free := c.freeForSandboxes()
	for free < c.o.MinFreeMemoryMB && c.host.Shrink() {
		free = c.freeForSandboxes()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, shuttingDown()
	}
	if full := c.atCapacity(free); full != nil {
		return nil, full
	}
	return c.newReservation(project), nil
}

// await waits for a waiter's turn, and removes it from the queue if that does not come in time.
func (c *Controller) await(ctx context.Context, w *waiter, patience time.Duration) (*Reservation, error) {
	late := make(chan struct{})
	stop := c.o.Clock.AfterFunc(patience, func() { close(late) })
	defer stop()
	var err error
	select {
	case a := <-w.answer:
		return a.reservation, a.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.o.Background.Done():
		err = shuttingDown()
	case <-late:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.queue.leave(w) {
		a := <-w.answer // its turn has just come
		if err == nil || a.reservation == nil {
			return a.reservation, a.err
		}
		a.reservation.leave()
	}
	if err == nil {
		err = orBusy(c.atCapacity(c.freeForSandboxes()))
	}
	return nil, err
}

// admit gives reservations to waiters as capacity allows. The caller holds c.mu.
func (c *Controller) admit() {
	for c.queue.waiting > 0 && c.starting < c.startsAtOnce() {
		full := c.atCapacity(c.freeForSandboxes())
		if full != nil && c.o.Wait > 0 {
			c.lookForMemory()
			return
		}
		w := c.queue.next()
		// The count on other hosts may be stale; the store counts them at the start.
		switch err := c.checkCount(w.project, w.plan, 0); {
		case full != nil:
			w.answer <- admitted{err: full}
		case err != nil:
			w.answer <- admitted{err: err}
		default:
			w.answer <- admitted{reservation: c.newReservation(w.project)}
		}
	}
}

// lookForMemory schedules another attempt to admit waiters, since no event tells when memory
// becomes free. The caller holds c.mu.
func (c *Controller) lookForMemory() {
	if c.queue.looking || c.queue.waiting == 0 || c.o.MinFreeMemoryMB == 0 {
		return
	}
	c.queue.looking = true
	c.o.Clock.AfterFunc(memoryLook, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.queue.looking = false
		c.admit()
		c.lookForMemory()
	})
}

// newReservation is called with c.mu held.
func (c *Controller) newReservation(project string) *Reservation {
	c.starting++
	c.startingIn[project]++
	return &Reservation{c: c, project: project}
}

// startsAtOnce is the limit on concurrent starts.
func (c *Controller) startsAtOnce() int {
	if c.o.StartsAtOnce > 0 {
		return c.o.StartsAtOnce
	}
	return max(4, 2*runtime.NumCPU())
}

// atCapacity returns why the host can take no more sandboxes with the given free memory in MB,
// or nil. The caller holds c.mu.
func (c *Controller) atCapacity(free int) error {
	if n := len(c.running) + c.starting; c.o.MaxSandboxes > 0 && n >= c.o.MaxSandboxes {
		return capacityError("the host runs %d sandboxes, its maximum", n).
			WithHint("End some, or raise the server's --max-sandboxes.")
	}
	if free < c.o.MinFreeMemoryMB {
		return capacityError("the host has %d MB of memory left", free).WithHint("Try again when other sandboxes have ended.")
	}
	return nil
}

// Full reports whether the host can take no more sandboxes, even after giving up ready
// machines. It does give them up.
func (c *Controller) Full() bool {
	free := c.freeForSandboxes()
	for free < c.o.MinFreeMemoryMB && c.host.Shrink() {
		free = c.freeForSandboxes()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed || c.atCapacity(free) != nil
}

// Tight reports whether the host could be at capacity with that many sandboxes more.
func (c *Controller) Tight(more int) bool {
	free := c.freeForSandboxes() - more*bothy.DefaultMemoryMB
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.running) + c.starting + c.queue.waiting + more
	return c.o.MaxSandboxes > 0 && n > c.o.MaxSandboxes || free < c.o.MinFreeMemoryMB
}

// orBusy returns the error for a request that waited for others to start.
func orBusy(full error) error {
	if full != nil {
		return full
	}
	return capacityError("too many sandboxes are being started").WithHint("Try again in a moment, with fewer at once.")
}

func capacityError(format string, args ...any) *bothy.Error {
	e := bothy.Errorf(bothy.CodeCapacity, format, args...)
	e.RetryAfter = retryAfter
	return e
}

func shuttingDown() error {
	e := bothy.Errorf(bothy.CodeShuttingDown, "the server is shutting down").WithHint("Try again in a moment: sandboxes keep running, and the next server finds them.")
	e.RetryAfter = 2 * time.Second
	return e
}

func (q *queue) join(w *waiter) {
	if q.waiters == nil {
		q.waiters = map[string][]*waiter{}
	}
	if len(q.waiters[w.project]) == 0 {
		q.projects = append(q.projects, w.project)
	}
	q.waiters[w.project] = append(q.waiters[w.project], w)
	q.waiting++
}

// next removes the next waiter from the queue, which must not be empty.
func (q *queue) next() *waiter {
	project := q.projects[0]
	q.projects = append(q.projects[1:], project)
	w := q.waiters[project][0]
	q.leave(w)
	return w
}

// leave reports whether w was in the queue.
func (q *queue) leave(w *waiter) bool {
	list := q.waiters[w.project]
	i := slices.Index(list, w)
	if i < 0 {
		return false
	}
	q.waiting--
	if q.waiters[w.project] = slices.Delete(list, i, i+1); len(list) == 1 {
		delete(q.waiters, w.project)
		q.projects = slices.DeleteFunc(q.projects, func(p string) bool { return p == w.project })
	}
	return true
}
