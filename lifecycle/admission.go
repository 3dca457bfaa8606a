package lifecycle

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
	// maxWaiting bounds the requests that wait; one more is refused at once.
	maxWaiting = 10000
	// memoryLook is how often those who wait look for memory.
	memoryLook = 250 * time.Millisecond
	// retryAfter is when a request that was refused is worth another try.
	retryAfter = 5 * time.Second
)

// place is room for one sandbox that is about to start.
type place struct {
	s       *Service
	project string
	gone    bool // given back, or taken by a live sandbox; under s.mu
}

// release gives the place back, unless a live sandbox has taken it.
func (p *place) release() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.leave()
}

// leave is called with s.mu held.
func (p *place) leave() {
	if p.gone {
		return
	}
	p.gone = true
	p.s.starting--
	if p.s.startingIn[p.project]--; p.s.startingIn[p.project] == 0 {
		delete(p.s.startingIn, p.project)
	}
	p.s.letIn()
	p.s.pool.poke()
}

// line is the requests that wait for a place: those of a project in the order in
// which they came, and the projects in turn. It is under Service.mu.
type line struct {
	projects []string // whose turn is next comes first
	tickets  map[string][]*ticket
	waiting  int
	looking  bool // a timer for memory runs
}

// ticket is one request that waits.
type ticket struct {
	project string
	plan    bothy.Plan
	answer  chan admitted // takes one
}

type admitted struct {
	place *place
	err   error
}

// reserve takes a place for one more sandbox before anything is started. While
// others start, or the host is full, it waits for its turn.
func (s *Service) reserve(ctx context.Context, project string) (*place, error) {
	plan, err := s.plan(ctx, project)
	if err != nil {
		return nil, err
	}
	free := s.freeForSandboxes()
	for free < s.o.MinFreeMemoryMB && s.shrinkPool(s.background) {
		free = s.freeForSandboxes()
	}
	// Those that start now may be on any engine.
	slowest := startPatience
	for name := range s.engines.opened() {
		slowest = max(slowest, s.patience(name, startPatience))
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, shuttingDown()
	}
	if err := s.checkPlace(project, plan); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	full := s.fullWith(free)
	if full == nil && s.line.waiting == 0 && s.starting < s.startsAtOnce() {
		p := s.newPlace(project)
		s.mu.Unlock()
		return p, nil
	}
	patience := s.o.AdmissionWait
	if full == nil {
		patience = max(patience, slowest)
	}
	if patience <= 0 || s.line.waiting >= maxWaiting {
		s.mu.Unlock()
		return nil, orBusy(full)
	}
	t := &ticket{project: project, plan: plan, answer: make(chan admitted, 1)}
	s.line.join(t)
	s.lookForMemory()
	s.mu.Unlock()
	return s.await(ctx, t, patience)
}

// await waits for a ticket's turn. One that is given up leaves the line.
func (s *Service) await(ctx context.Context, t *ticket, patience time.Duration) (*place, error) {
	late := make(chan struct{})
	stop := s.clock.AfterFunc(patience, func() { close(late) })
	defer stop()
	var err error
	select {
	case a := <-t.answer:
		return a.place, a.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.background.Done():
		err = shuttingDown()
	case <-late:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.line.leave(t) {
		a := <-t.answer // its turn has just come
		if err == nil || a.place == nil {
			return a.place, a.err
		}
		a.place.leave()
	}
	if err == nil {
		err = orBusy(s.full())
	}
	return nil, err
}

// letIn gives places to those who wait, as far as there are any. The caller
// holds s.mu.
func (s *Service) letIn() {
	for s.line.waiting > 0 && s.starting < s.startsAtOnce() {
		full := s.full()
		if full != nil && s.o.AdmissionWait > 0 {
			s.lookForMemory()
			return
		}
		t := s.line.next()
		switch err := s.checkPlace(t.project, t.plan); {
		case full != nil:
			t.answer <- admitted{err: full}
		case err != nil:
			t.answer <- admitted{err: err}
		default:
			t.answer <- admitted{place: s.newPlace(t.project)}
		}
	}
}

// lookForMemory lets those who wait in again later: nobody says when memory has
// become free. The caller holds s.mu.
func (s *Service) lookForMemory() {
	if s.line.looking || s.line.waiting == 0 || s.o.MinFreeMemoryMB == 0 {
		return
	}
	s.line.looking = true
	s.clock.AfterFunc(memoryLook, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.line.looking = false
		s.letIn()
		s.lookForMemory()
	})
}

// newPlace is called with s.mu held.
func (s *Service) newPlace(project string) *place {
	s.starting++
	s.startingIn[project]++
	return &place{s: s, project: project}
}

// startsAtOnce is how many sandboxes may be starting.
func (s *Service) startsAtOnce() int {
	if s.o.StartsAtOnce > 0 {
		return s.o.StartsAtOnce
	}
	return max(4, 2*runtime.NumCPU())
}

// freeForSandboxes is what the host has left, in MB, where that matters.
func (s *Service) freeForSandboxes() int {
	if s.o.MinFreeMemoryMB == 0 {
		return 1 << 30
	}
	return s.hostFree()
}

// full says why the host can take no more sandboxes, or nil. The caller holds
// s.mu.
func (s *Service) full() error { return s.fullWith(s.freeForSandboxes()) }

// fullWith is full where so many MB are left.
func (s *Service) fullWith(free int) error {
	if n := len(s.live) + len(s.unattached) + s.starting; s.o.MaxSandboxes > 0 && n >= s.o.MaxSandboxes {
		e := capacityError("the host runs %d sandboxes, as many as it may", n).
			WithHint("End some, or raise the server's --max-sandboxes.")
		e.RetryAfter = retryAfter
		return e
	}
	if free < s.o.MinFreeMemoryMB {
		e := capacityError("the host has %d MB of memory left", free).WithHint("Try again when other sandboxes have ended.")
		e.RetryAfter = retryAfter
		return e
	}
	return nil
}

// orBusy is the error of one who waited for others to start.
func orBusy(full error) error {
	if full != nil {
		return full
	}
	e := capacityError("too many sandboxes are being started").WithHint("Try again in a moment, with fewer at once.")
	e.RetryAfter = retryAfter
	return e
}

func shuttingDown() error {
	e := bothy.Errorf(bothy.CodeShuttingDown, "the server is shutting down").WithHint("Try again in a moment: sandboxes live on, and the next server finds them.")
	e.RetryAfter = 2 * time.Second
	return e
}

func (l *line) join(t *ticket) {
	if l.tickets == nil {
		l.tickets = map[string][]*ticket{}
	}
	if len(l.tickets[t.project]) == 0 {
		l.projects = append(l.projects, t.project)
	}
	l.tickets[t.project] = append(l.tickets[t.project], t)
	l.waiting++
}

// next takes the ticket whose turn it is out of the line, which is not empty.
func (l *line) next() *ticket {
	project := l.projects[0]
	l.projects = append(l.projects[1:], project)
	t := l.tickets[project][0]
	l.leave(t)
	return t
}

// leave reports whether the ticket was in the line.
func (l *line) leave(t *ticket) bool {
	list := l.tickets[t.project]
	i := slices.Index(list, t)
	if i < 0 {
		return false
	}
	l.waiting--
	if l.tickets[t.project] = slices.Delete(list, i, i+1); len(list) == 1 {
		delete(l.tickets, t.project)
		l.projects = slices.DeleteFunc(l.projects, func(p string) bool { return p == t.project })
	}
	return true
}
