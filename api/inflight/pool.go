// Package inflight limits what requests in flight use of the server: their number, open
// streams, and memory. There is a limit for each project and one for all of them, and a
// part is reserved for the operator. A request over a limit waits in its project's
// queue, and is refused when it has waited too long. api uses it; server sets the limits.
package inflight

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// Bounds are the limits of a pool.
type Bounds struct {
	// Total limits all projects together, Project each of them.
	Total, Project int64
	// Reserved is the part of Total that only the operator's project may use. Project
	// does not apply to that one.
	Reserved int64
	// Waiting is how many requests of a project may wait.
	Waiting int
	// Wait is how long a request waits at most.
	Wait time.Duration
}

// Pool is a resource that requests share. Its methods may be called concurrently.
//
// The requests of a project are served in the order of arrival, and the projects in
// turn. A request that waits for other projects is not overtaken by later ones of
// theirs, however small: otherwise a large one might wait forever.
type Pool struct {
	what   string
	bounds Bounds

	mu       sync.Mutex
	used     int64
	tenants  int64 // the part of used by projects other than the operator's
	projects map[string]*share
	turn     *list.List // of *share, with waiters
	blocked  bool       // a tenant waits for other projects
	refused  int64
}

// share is the amount that a project holds, and its waiters.
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

// most returns how much a project may hold.
func (p *Pool) most(project string) int64 {
	if project == bothy.DefaultProject {
		return p.bounds.Total
	}
	return max(min(p.bounds.Project, p.bounds.Total-p.bounds.Reserved), 1)
}

// Acquire reserves n for a project, waiting if necessary. n is reduced to what the
// project may hold. The caller releases the amount that is returned.
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
	case <-w.granted: // granted at the same moment
		if ctx.Err() == nil {
			return w.n, nil
		}
		p.give(s, w.n)
		return 0, ctx.Err()
	default:
	}
	s.waiters.Remove(place)
	p.leave(s)
	p.dispatch() // it may have blocked others
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return 0, p.refuse(s)
}

// Release releases n of the amount that a project holds.
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

// fits reports whether a project may get n more.
func (p *Pool) fits(s *share, n int64) bool {
	return s.used+n <= p.most(s.project) && p.left(s, n)
}

// left reports whether n is free for a project.
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

// drop forgets a project that holds nothing and has no waiters.
func (p *Pool) drop(s *share) {
	if s.used == 0 && s.waiters.Len() == 0 {
		delete(p.projects, s.project)
	}
}

// leave removes a project without waiters from the rotation.
func (p *Pool) leave(s *share) {
	if s.waiters.Len() == 0 && s.turn != nil {
		p.turn.Remove(s.turn)
		s.turn = nil
	}
	p.drop(s)
}

// dispatch grants all requests that fit, one of each project in turn.
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

// grant serves a project's first waiter, if it fits.
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

// retryAfter is how long a refused request should wait before it is repeated.
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
