package kernel

import (
	"math"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/ktime"
)

func TestLoadAverage(t *testing.T) {
	var l loadAverage
	now := ktime.ZeroTime
	for range time.Minute / linux.ClockTick {
		now = now.Add(linux.ClockTick)
		l.tick(2, now)
	}
	for i, minutes := range []float64{1, 5, 15} {
		if got, want := l.get(now)[i], 2*(1-math.Exp(-1/minutes)); math.Abs(got-want) > 0.001 {
			t.Errorf("two tasks for a minute are a load of %.3f over %v minutes, want %.3f", got, minutes, want)
		}
	}
	before := l.get(now)[0]
	if got, want := l.get(now.Add(time.Minute))[0], before/math.E; math.Abs(got-want) > 0.001 {
		t.Errorf("a minute later the load is %.3f, want %.3f", got, want)
	}
}
