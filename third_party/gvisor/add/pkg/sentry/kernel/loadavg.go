package kernel

import (
	"math"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/ktime"
	"gvisor.dev/gvisor/pkg/sync"
)

// loadAverage is the mean number of running tasks over about 1, 5 and 15 minutes.
type loadAverage struct {
	mu   sync.Mutex
	at   ktime.Time    // of the last sample
	busy time.Duration // the tasks' time since then
	avg  [3]float64
}

// tick accounts a tick of the CPU clock, which only ticks while tasks run.
func (l *loadAverage) tick(running int, now ktime.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy += time.Duration(running) * linux.ClockTick
	l.sampleLocked(now)
}

func (l *loadAverage) get(now ktime.Time) [3]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sampleLocked(now)
	return l.avg
}

// sampleLocked takes a sample if the last one is old, as Linux's calc_global_load().
func (l *loadAverage) sampleLocked(now ktime.Time) {
	passed := now.Sub(l.at)
	if passed < 5*time.Second {
		return
	}
	n := l.busy.Seconds() / passed.Seconds()
	for i, over := range []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute} {
		keep := math.Exp(-passed.Seconds() / over.Seconds())
		l.avg[i] = l.avg[i]*keep + n*(1-keep)
	}
	l.at, l.busy = now, 0
}

// LoadAverage returns the load averages, the number of tasks, and the last thread ID.
func (k *Kernel) LoadAverage() (avg [3]float64, tasks int, last ThreadID) {
	root := k.tasks.Root
	k.tasks.mu.RLock()
	tasks, last = len(root.tids), root.last
	k.tasks.mu.RUnlock()
	return k.loadAverage.get(k.MonotonicClock().Now()), tasks, last
}

// Signals returns the signals that t blocks, ignores and catches.
func (t *Task) Signals() (blocked, ignored, caught linux.SignalSet) {
	sh := t.tg.signalLock()
	defer sh.mu.Unlock()
	for sig, act := range sh.actions {
		switch act.Handler {
		case linux.SIG_DFL:
		case linux.SIG_IGN:
			ignored |= linux.SignalSetOf(sig)
		default:
			caught |= linux.SignalSetOf(sig)
		}
	}
	return t.SignalMask(), ignored, caught
}
