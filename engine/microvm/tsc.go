package microvm

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// An emulated machine sees the host's time stamp counter, and its kernel would calibrate that
// against emulated clocks: on a busy host it gets a wrong rate, and hangs. So the rate is passed
// to it.

// instant is a moment by the host's clock and by its counter.
type instant struct {
	nanos int64
	ticks uint64
}

// now reads both as close together as it can.
func now() (at instant) {
	closest := int64(math.MaxInt64)
	for range 20 {
		before := monotonic()
		ticks := counter()
		after := monotonic()
		if after-before < closest {
			closest = after - before
			at = instant{nanos: before + (after-before)/2, ticks: ticks}
		}
	}
	return at
}

func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts)
	return ts.Nano()
}

// longEnough is how far apart two instants must be to determine the rate to a few millionths.
const longEnough = 50 * time.Millisecond

// rateSince returns the rate of the counter in thousands of ticks per second.
func rateSince(first instant) uint64 {
	if wait := int64(longEnough) - (monotonic() - first.nanos); wait > 0 {
		time.Sleep(time.Duration(wait))
	}
	last := now()
	return uint64(math.Round(float64(last.ticks-first.ticks) / float64(last.nanos-first.nanos) * 1e6))
}

// sameRate reports whether a machine may continue with a counter of another rate: its seconds
// would be longer or shorter by the same fraction.
func sameRate(a, b uint64) bool { return math.Abs(float64(a)-float64(b)) <= 0.001*float64(a) }
