package lifecycle

import (
	"log/slog"
	"time"
)

// laps measures the steps of a start, for the log.
type laps struct {
	last  time.Time
	steps []any
}

func newLaps() *laps { return &laps{last: time.Now()} }

func (l *laps) lap(step string) {
	now := time.Now()
	l.steps = append(l.steps, slog.Float64(step, float64(now.Sub(l.last).Microseconds())/1000))
	l.last = now
}

func (l *laps) attr() slog.Attr { return slog.Group("ms", l.steps...) }
