package metering

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/store"
)

// Clock gives the time in two ways: the wall clock, and the time since the host started, which
// cannot be set back.
type Clock interface {
	Now() store.Moment
}

type hostClock struct{ boot string }

// HostClock is this host's clock.
func HostClock() Clock {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return hostClock{} // then the wall clock counts across restarts
	}
	return hostClock{strings.TrimSpace(string(b))}
}

// Now implements Clock. Time for which the host was suspended does not count: its sandboxes were
// suspended, too.
func (c hostClock) Now() store.Moment {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // does not fail
	return store.Moment{Wall: time.Now(), Boot: c.boot, Uptime: time.Duration(t.Nano())}
}

// elapsed is the time between two moments, and never negative. Across reboots of the host, only
// the wall clock can tell.
func elapsed(from, to store.Moment) time.Duration {
	if from.Boot == to.Boot && from.Boot != "" {
		return max(0, to.Uptime-from.Uptime)
	}
	return max(0, to.Wall.Sub(from.Wall).Truncate(time.Millisecond))
}
