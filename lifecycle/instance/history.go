package instance

import (
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// maxHistory is how many measurements are kept: half an hour at one every ten seconds.
const maxHistory = 180

// History keeps the latest measurements of a machine in memory.
type History struct {
	mu     sync.Mutex
	points []bothy.Metrics
	oldest int // index of the oldest, once the ring is full
}

// Add stores a measurement, replacing the oldest if the history is full.
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

// Latest returns the last two measurements; nil if there are none.
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

// Between returns the measurements from one time to another, inclusive, oldest first. A zero
// time means no limit.
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
