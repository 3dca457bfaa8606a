package metering

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/store"
)

// Clock tells the time in two ways: as people have it, and since the host was
// started, which cannot be set back.
type Clock interface {
	Now() store.Moment
}

type hostClock struct{ boot string }

// HostClock is this host's.
func HostClock() Clock {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return hostClock{} // then the clock on the wall counts across restarts
	}
	return hostClock{strings.TrimSpace(string(b))}
}

// Now implements Clock. The time for which the host slept does not count: its
// sandboxes slept, too.
func (c hostClock) Now() store.Moment {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // does not fail
	return store.Moment{Wall: time.Now(), Boot: c.boot, Uptime: time.Duration(t.Nano())}
}

// elapsed is the time between two moments, and never negative. Between boots of
// the host only the clock on the wall can tell.
func elapsed(from, to store.Moment) time.Duration {
	if from.Boot == to.Boot && from.Boot != "" {
		return max(0, to.Uptime-from.Uptime)
	}
	return max(0, to.Wall.Sub(from.Wall).Truncate(time.Millisecond))
}
