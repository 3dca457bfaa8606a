package instance

import (
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// maxHistory is how many measurements are kept: with one every ten seconds, those of half
// an hour.
const maxHistory = 180

// History keeps the latest measurements of a machine, in memory. It grows only as they
// come.
type History struct {
	mu     sync.Mutex
	points []bothy.Metrics
	oldest int // once it is full
}

// Add keeps a measurement, in place of the oldest where there is no more room.
func (h *History) Add(m bothy.Metrics) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.points) < maxHistory {
		h.points = append(h.points, m)
		return
	}
	h.points[h.oldest] = m
	h.oldest = (h.oldest + 1) % maxHistory
}

// Latest returns the last measurement and the one before; nil where there is none.
func (h *History) Latest() (before, last *bothy.Metrics) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := func(back int) *bothy.Metrics {
		n := len(h.points)
		if n < back {
			return nil
		}
		m := h.points[(h.oldest+n-back)%n]
		return &m
	}
	return at(2), at(1)
}

// Between returns what was measured from one time to another, both included, oldest
// first. A zero time is no bound.
func (h *History) Between(from, to time.Time) []*bothy.Metrics {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := []*bothy.Metrics{}
	for i := range h.points {
		m := h.points[(h.oldest+i)%len(h.points)]
		if !m.Time.Before(from) && (to.IsZero() || !m.Time.After(to)) {
			list = append(list, &m)
		}
	}
	return list
}
