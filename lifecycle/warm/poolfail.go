package warm

import (
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// poolFailed is how long nothing of a shape is made after that has failed
	// once. It doubles with every further failure.
	poolFailed = 15 * time.Second
	// poolTries is after how many failures in a row nothing is tried any more,
	// until somebody asks for the shape. A template that is made anew has
	// another digest, and so another shape.
	poolTries = 6
)

// failures are those in a row of making a machine of a shape.
type failures struct {
	count int
	last  time.Time
}

// rest is how long to wait after the last of them.
func (f failures) rest() time.Duration { return poolFailed << max(min(f.count, poolTries)-1, 0) }

// over reports whether the next attempt may be made.
func (f failures) over(now time.Time) bool {
	return f.count == 0 || f.count < poolTries && now.Sub(f.last) > f.rest()
}

// fails notes that a machine could not be made; p.mu is held.
func (p *pool) fails(h class, t *bothy.Template, now time.Time) failures {
	d := p.demand[h]
	if d == nil {
		d = &demand{template: t, starts: now}
		p.demand[h] = d
	}
	d.failures.count++
	d.failures.last = now
	return d.failures
}

// maySucceed is false for a while after machines of the shape could not be
// made.
func (s *Pool) maySucceed(h class) bool {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	d := s.pool.demand[h]
	return d == nil || d.failures.over(s.o.Clock.Now())
}

// logFailure tells of the first failure in a row, and of the last. Those between
// say nothing new.
func (s *Pool) logFailure(h class, err error, f failures) {
	switch f.count {
	case 1:
		s.logPool("make a sandbox ready, and tries again more and more seldom", h, err)
	case poolTries:
		s.logPool("make a sandbox ready, and waits until the template changes or somebody asks for it", h, err)
	default:
		s.o.Log.Debug("the pool could not make a sandbox ready", "shape", h.String(), "error", err, "failures", f.count)
	}
}
