// Package inflight bounds what requests hold of the server while they are worked on:
// how many there are, how many streams stay open, and how much memory they take.
// Each project has its bound, all together have one, and a part is reserved for the
// operator. What exceeds a bound waits in line, project by project, and is refused
// when it has waited too long. The doors (api) use it; server sets the bounds.
package inflight

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// Bounds are those of a pool.
type Bounds struct {
	// Total is for all projects, Project for each of them.
	Total, Project int64
	// Reserved is the part of Total that only the operator's project may use, whose
	// only bound is Total.
	Reserved int64
	// Waiting is how many requests of a project may wait in line.
	Waiting int
	// Wait is how long one waits.
	Wait time.Duration
}

// Pool is an amount of something that requests share. Its methods may be called from
// many goroutines at once.
//
// The requests of a project are served in the order in which they came, and the
// projects in turn. One that waits for what others hold is not overtaken by later
// ones of other projects, however small: it would never fit otherwise.
type Pool struct {
	what   string
	bounds Bounds

	mu       sync.Mutex
	used     int64
	tenants  int64 // the part of used that is not the operator's
	projects map[string]*share
	turn     *list.List // of *share, those that have waiters
	blocked  bool       // a tenant waits for what others hold
	refused  int64
}

// share is what a project holds, and its waiters.
type share struct {
	project string
	used    int64
	waiters *list.List // of *waiter
	turn    *list.Element
}

type waiter struct {
	n       int64
	granted chan struct{}
}

// NewPool returns a pool. What names its contents in errors, such as "requests".
func NewPool(what string, b Bounds) *Pool {
	return &Pool{what: what, bounds: b, projects: map[string]*share{}, turn: list.New()}
}

// most is what a project may hold.
func (p *Pool) most(project string) int64 {
	if project == bothy.DefaultProject {
		return p.bounds.Total
	}
	return max(min(p.bounds.Project, p.bounds.Total-p.bounds.Reserved), 1)
}

// Acquire reserves n for a project, waiting if necessary. A request for more than
// the project may ever hold is cut to that. The caller releases what it got.
func (p *Pool) Acquire(ctx context.Context, project string, n int64) (got int64, err error) {
	n = min(n, p.most(project))
	p.mu.Lock()
	s := p.share(project)
	if s.waiters.Len() == 0 && (!p.blocked || project == bothy.DefaultProject) && p.fits(s, n) {
		p.take(s, n)
		p.mu.Unlock()
		return n, nil
	}
	if s.waiters.Len() >= p.bounds.Waiting || p.bounds.Wait <= 0 {
		defer p.mu.Unlock()
		return 0, p.refuse(s)
	}
	w := &waiter{n, make(chan struct{})}
	place := s.waiters.PushBack(w)
	if s.turn == nil {
		s.turn = p.turn.PushBack(s)
	}
	p.dispatch()
	p.mu.Unlock()
	return p.wait(ctx, s, place, w)
}

func (p *Pool) wait(ctx context.Context, s *share, place *list.Element, w *waiter) (int64, error) {
	timer := time.NewTimer(p.bounds.Wait)
	defer timer.Stop()
	select {
	case <-w.granted:
		return w.n, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.granted: // just now
		if ctx.Err() == nil {
			return w.n, nil
		}
		p.give(s, w.n)
		return 0, ctx.Err()
	default:
	}
	s.waiters.Remove(place)
	p.leave(s)
	p.dispatch() // it may have stood in others' way
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return 0, p.refuse(s)
}

// Release releases n of what a project holds.
func (p *Pool) Release(project string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give(p.share(project), n)
}

// Stats returns how much is held, and how often a request was refused.
func (p *Pool) Stats() (used, refused int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used, p.refused
}

func (p *Pool) share(project string) *share {
	s := p.projects[project]
	if s == nil {
		s = &share{project: project, waiters: list.New()}
		p.projects[project] = s
	}
	return s
}

// fits reports whether a project may have n more.
func (p *Pool) fits(s *share, n int64) bool {
	return s.used+n <= p.most(s.project) && p.left(s, n)
}

// left reports whether the others leave n for a project.
func (p *Pool) left(s *share, n int64) bool {
	operator := s.project == bothy.DefaultProject
	return p.used+n <= p.bounds.Total && (operator || p.tenants+n <= p.bounds.Total-p.bounds.Reserved)
}

func (p *Pool) take(s *share, n int64) {
	s.used += n
	p.used += n
	if s.project != bothy.DefaultProject {
		p.tenants += n
	}
}

func (p *Pool) give(s *share, n int64) {
	p.take(s, -n)
	p.dispatch()
	p.drop(s)
}

// drop forgets a project that has nothing here.
func (p *Pool) drop(s *share) {
	if s.used == 0 && s.waiters.Len() == 0 {
		delete(p.projects, s.project)
	}
}

// leave takes a project out of the rotation when none of its requests is waiting
// any more.
func (p *Pool) leave(s *share) {
	if s.waiters.Len() == 0 && s.turn != nil {
		p.turn.Remove(s.turn)
		s.turn = nil
	}
	p.drop(s)
}

// dispatch grants what can be granted, one request of each project in turn.
func (p *Pool) dispatch() {
	p.blocked = false
	for progress := true; progress; {
		progress = false
		for e := p.turn.Front(); e != nil; {
			next := e.Next()
			if p.grant(e.Value.(*share)) {
				progress = true
			}
			e = next
		}
	}
}

// grant serves the first that waits in a project, if it can be served.
func (p *Pool) grant(s *share) bool {
	first := s.waiters.Front()
	w := first.Value.(*waiter)
	if s.used+w.n > p.most(s.project) {
		return false
	}
	operator := s.project == bothy.DefaultProject
	if p.blocked && !operator {
		return false
	}
	if !p.left(s, w.n) {
		p.blocked = p.blocked || !operator
		return false
	}
	p.take(s, w.n)
	s.waiters.Remove(first)
	close(w.granted)
	p.turn.MoveToBack(s.turn)
	p.leave(s)
	return true
}

// retryAfter is when a request that was refused is worth another try.
const retryAfter = 2 * time.Second

func (p *Pool) refuse(s *share) error {
	p.refused++
	who := "the project " + s.project
	if s.used < p.most(s.project)/2 {
		who = "this server"
	}
	p.drop(s)
	e := bothy.Errorf(bothy.CodeRateLimited, "%s has too many %s in flight", who, p.what).
		WithHint("Try again in some seconds, and do less at once. The operator sets the bounds, under `inflight` in the settings.")
	e.RetryAfter = retryAfter
	return e
}
