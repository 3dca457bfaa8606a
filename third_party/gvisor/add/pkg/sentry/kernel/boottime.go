package kernel

import (
	"gvisor.dev/gvisor/pkg/sentry/ktime"
	sentrytime "gvisor.dev/gvisor/pkg/sentry/time"
)

// BootTimeClock returns the application CLOCK_BOOTTIME clock, which is CLOCK_MONOTONIC with the
// time for which that was stopped.
func (k *Kernel) BootTimeClock() ktime.SampledClock {
	return &timekeeperClock{tk: k.timekeeper, c: sentrytime.BootTime}
}

// stopMonotonic stops CLOCK_MONOTONIC.
func (t *Timekeeper) stopMonotonic() {
	if t.clocks == nil {
		return
	}
	now, err := t.GetTime(sentrytime.Monotonic)
	if err != nil {
		panic("unable to get current monotonic time: " + err.Error())
	}
	t.pausedAt.Store(now)
}

// startMonotonic lets it go on from where it stopped.
func (t *Timekeeper) startMonotonic() {
	at := t.pausedAt.Load()
	if at == 0 {
		return
	}
	now, err := t.clocks.GetTime(sentrytime.Monotonic)
	if err != nil {
		panic("unable to get current monotonic time: " + err.Error())
	}
	now += t.monotonicOffset.Load()
	t.suspended.Add(now - at)
	t.monotonicOffset.Add(at - now)
	t.pausedAt.Store(0)
}
