package instance

import (
	"context"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// killPause is how long a killed process has to free its memory before the next one is
	// chosen.
	killPause = 100 * time.Millisecond
	// givesBack is how long the memory of a killed process may take to reach the host. The
	// sandbox's kernel returns it lazily; killing more processes meanwhile would be wrong.
	givesBack = 5 * time.Second
	// On a crowded host everything takes longer inside. So memory may come back as late as
	// slowBy times what the kill took, if that is later, but not later than slowest.
	slowBy  = 20
	slowest = 20 * time.Second
	// settles is how long the decrease may stall once most of it has arrived.
	settles = 300 * time.Millisecond
	// overAtMost is how long a sandbox may stay over its memory limit. After that, its memory
	// is not held by processes that could be killed but, for example, by files in memory.
	overAtMost = 10 * time.Second
	// unheard is the gap between reports that means that the sandbox was far below its limit,
	// or frozen.
	unheard = time.Second
	// takesMore is the share of the limit by which usage must have risen again, after most of
	// the memory came back, to conclude that another process allocated it.
	takesMore   = 1. / 32
	killTimeout = 5 * time.Second
)

// WatchMemory makes the guest kill the largest process when the limit is reached, so that the
// sandbox survives. If it stays over its limit regardless, it is ended.
func (s *Machines) WatchMemory(ctx context.Context, l *Instance) {
	var mu sync.Mutex
	var o overLimit
	var asking sync.WaitGroup
	defer asking.Wait()
	err := l.Machine.WatchMemory(ctx, func(used, limit int64) {
		mu.Lock()
		action := o.next(s.o.Clock.Now(), used, limit)
		if action == killNow {
			o.ask(s.o.Clock.Now(), used)
		}
		mu.Unlock()
		switch action {
		case killNow:
			// Do not block: by the time the guest responds, the memory may have been freed and
			// allocated again.
			asking.Go(func() {
				freed := s.freeMemory(ctx, l, used, limit)
				mu.Lock()
				defer mu.Unlock()
				o.killed(s.o.Clock.Now(), freed)
			})
		case endNow:
			s.endOverLimit(ctx, l)
		}
	})
	if err != nil && ctx.Err() == nil {
		s.o.Log.Warn("cannot watch a sandbox's memory limit", "sandbox", l.ID, "error", err)
	}
}

// overLimit tracks how long a sandbox has been over its memory limit.
type overLimit struct {
	heard  time.Time // the last report
	over   bool
	since  time.Time // when it went over its limit
	asking bool      // a kill is in progress, since begun
	begun  time.Time
	asked  time.Time // when the last kill completed
	// back is how long the memory that the last kill freed may take to reach the host.
	back time.Duration
	// peak is the highest usage until the killed process could have died, and freed is what
	// that process used.
	peak, freed int64
	// low is the lowest usage since the guest was asked to kill, first seen at fell.
	low  int64
	fell time.Time
}

type overAction int

const (
	waitNow overAction = iota
	killNow
	endNow
)

// next decides what to do with a sandbox that uses so many bytes near its limit.
func (o *overLimit) next(now time.Time, used, limit int64) overAction {
	if now.Sub(o.heard) > unheard || used <= limit {
		o.over = false
	}
	o.heard = now
	if used > limit && !o.over {
		o.over, o.since = true, now
	}
	dying := o.asking || now.Sub(o.asked) < killPause
	if dying {
		o.peak = max(o.peak, used)
	}
	if used < o.low {
		o.low, o.fell = used, now
	}
	switch {
	case used <= limit || dying || now.Sub(o.fell) < o.patience(used, limit):
		return waitNow
	case now.Sub(o.since) > overAtMost+max(0, o.back-givesBack):
		return endNow
	}
	return killNow
}

// patience is how long usage must not have fallen after a kill before the next one: longer
// while most of the freed memory has not come back. The sandbox's kernel does not let any
// process allocate much in that time.
func (o *overLimit) patience(used, limit int64) time.Duration {
	switch {
	case o.freed == 0:
		return killPause
	case o.low > o.peak-o.freed/2:
		return o.back
	case used > o.low+int64(float64(limit)*takesMore):
		return 0
	}
	return settles
}

// ask records that the guest is asked to kill at this usage.
func (o *overLimit) ask(now time.Time, used int64) {
	o.asking, o.begun, o.peak, o.low, o.freed, o.back = true, now, used, used, 0, 0
}

// killed records how much a kill frees.
func (o *overLimit) killed(now time.Time, freed int64) {
	if freed > 0 {
		o.back = min(max(givesBack, slowBy*now.Sub(o.begun)), slowest)
	}
	o.asking, o.heard, o.asked, o.fell, o.freed = false, now, now, now, freed
}

// freeMemory makes the guest kill the largest process, and returns how many bytes it used.
func (s *Machines) freeMemory(ctx context.Context, l *Instance, used, limit int64) int64 {
	kctx, cancel := context.WithTimeout(ctx, s.o.Patience(l.Engine, killTimeout))
	defer cancel()
	release, err := s.Wake(l)
	if err != nil {
		s.o.Log.Warn("memory limit reached in a frozen machine", "sandbox", l.ID, "error", err)
		return 0
	}
	defer release()
	killed, err := l.Guest.KillLargest(kctx, limit)
	if err != nil || !killed.Done {
		s.o.Log.Warn("memory limit reached but no process could be killed", "sandbox", l.ID, "used", used, "limit", limit, "error", err)
		return 0
	}
	s.o.Log.Info("killed a process at the memory limit", "sandbox", l.ID, "process", killed.Name, "rss", killed.RSSBytes, "limit", limit)
	s.owner.Killed(ctx, l, killed.Name)
	return killed.RSSBytes
}

func (s *Machines) endOverLimit(ctx context.Context, l *Instance) {
	if ctx.Err() != nil {
		return
	}
	x := bothy.Exit{Reason: bothy.EndOutOfMemory, Detail: "the sandbox stayed over its memory limit although processes were killed: " +
		"its memory was held by something else, such as files in memory; give it more with memory_mb"}
	if err := s.owner.OverLimit(context.WithoutCancel(ctx), l, x); err != nil {
		s.o.Log.Error("cannot end a sandbox that is over its memory limit", "sandbox", l.ID, "error", err)
	}
}
