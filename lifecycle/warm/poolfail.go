package warm

import (
	"time"

	"github.com/bothy-dev/bothy/store"
)

const (
	// poolFailed is the pause after the first failure to prepare a machine of a class. It
	// doubles with every further one.
	poolFailed = 15 * time.Second
	// poolTries is the number of consecutive failures after which nothing is tried until the
	// class is requested again. A rebuilt template has another digest, and so another class.
	poolTries = 6
)

// failures are consecutive failures to prepare a machine of a class.
type failures struct {
	count int
	last  time.Time
}

// pause is the pause after the last failure.
func (f failures) pause() time.Duration { return poolFailed << max(min(f.count, poolTries)-1, 0) }

// mayRetry reports whether the next attempt may be made.
func (f failures) mayRetry(now time.Time) bool {
	return f.count == 0 || f.count < poolTries && now.Sub(f.last) > f.pause()
}

// fails records a failure; p.mu is held.
func (p *pool) fails(h class, t *store.Template, now time.Time) failures {
	d := p.demand[h]
	if d == nil {
		d = &demand{template: t, starts: now}
		p.demand[h] = d
	}
	d.failures.count++
	d.failures.last = now
	return d.failures
}

// maySucceed is false for a while after a failure for the class.
func (s *Pool) maySucceed(h class) bool {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	d := s.pool.demand[h]
	return d == nil || d.failures.mayRetry(s.o.Clock.Now())
}

// logFailure logs the first and the last consecutive failure as warnings.
func (s *Pool) logFailure(h class, err error, f failures) {
	switch f.count {
	case 1:
		s.logPool("prepare a machine; trying again with growing pauses", h, err)
	case poolTries:
		s.logPool("prepare a machine; waiting for the template to change or a request for it", h, err)
	default:
		s.o.Log.Debug("the pool cannot prepare a machine", "shape", h.String(), "error", err, "failures", f.count)
	}
}
