package instance

import (
	"log/slog"
	"time"
)

// Steps measures the steps of a start, for the log.
type Steps struct {
	last  time.Time
	steps []any
}

func NewSteps() *Steps { return &Steps{last: time.Now()} }

func (l *Steps) Lap(step string) {
	now := time.Now()
	l.steps = append(l.steps, slog.Float64(step, float64(now.Sub(l.last).Microseconds())/1000))
	l.last = now
}

func (l *Steps) Attr() slog.Attr { return slog.Group("ms", l.steps...) }
