package kernel

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/ktime"
	sentrytime "gvisor.dev/gvisor/pkg/sentry/time"
)

// BootTimeClock returns the application CLOCK_BOOTTIME clock, which is CLOCK_MONOTONIC with the
// time for which that was stopped.
func (k *Kernel) BootTimeClock() ktime.SampledClock {
	return &timekeeperClock{tk: k.timekeeper, c: sentrytime.BootTime}
}

// SetTimer changes the setting of a timer of timer_create(2) or timerfd_create(2), calls f, and
// returns the previous setting. As on Linux, relative times on CLOCK_REALTIME do not follow changes
// of the time of day: they are spans of CLOCK_MONOTONIC.
func (k *Kernel) SetTimer(timer ktime.Timer, its linux.Itimerspec, abs bool, f func()) (linux.Itimerspec, error) {
	clock := timer.Clock()
	if c, ok := clock.(*timekeeperClock); ok && (c.c == sentrytime.Realtime || c.c == sentrytime.RealtimeSpan) {
		c := &timekeeperClock{tk: k.timekeeper, c: sentrytime.RealtimeSpan}
		if abs {
			c = k.timekeeper.realtimeClock
		}
		s, err := ktime.SettingFromItimerspec(its, abs, c)
		if err != nil {
			return linux.Itimerspec{}, err
		}
		now, old := timer.Set(ktime.Setting{}, f)
		timer.(*ktime.SampledTimer).SetClock(c, s)
		return ktime.ItimerspecFromSetting(now, old), nil
	}
	s, err := ktime.SettingFromItimerspec(its, abs, clock)
	if err != nil {
		return linux.Itimerspec{}, err
	}
	now, old := timer.Set(s, f)
	return ktime.ItimerspecFromSetting(now, old), nil
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
