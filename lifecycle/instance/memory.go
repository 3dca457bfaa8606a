package instance

import (
	"context"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// killPause is how long a killed process has to give its memory back before
	// the next one is chosen.
	killPause = 100 * time.Millisecond
	// givesBack is how long the memory of a killed process may take to arrive at
	// the host. The sandbox's kernel returns it when it finds the time; meanwhile
	// the next to be killed would be an innocent.
	givesBack = 2 * time.Second
	// settles is how long it may falter when most of it has arrived.
	settles = 300 * time.Millisecond
	// overAtMost is how long a sandbox may stay over its memory limit. What
	// keeps it there is then no process that could be killed: files in memory,
	// say.
	overAtMost = 10 * time.Second
	// unheard is how long nothing is heard of a sandbox that has got far below its
	// limit, or stands still.
	unheard = time.Second
	// takesMore is the part of the limit by which memory must have risen again when
	// most has come back, to be sure that somebody else has taken it.
	takesMore   = 1. / 32
	killTimeout = 5 * time.Second
)

// WatchMemory has the guest kill the largest process when the limit is reached,
// so that the sandbox itself lives on. One that stays over its limit all the
// same can run nothing more, and is ended.
func (s *Machines) WatchMemory(ctx context.Context, l *Instance) {
	var mu sync.Mutex
	var o overLimit
	var asking sync.WaitGroup
	defer asking.Wait()
	err := l.Machine.WatchMemory(ctx, func(used, limit int64) {
		mu.Lock()
		action := o.next(s.o.Clock.Now(), used, limit)
		if action == killNow {
			o.ask(used)
		}
		mu.Unlock()
		switch action {
		case killNow:
			// What is killed may have given back, and somebody else taken again, before
			// the guest's answer is here.
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
		s.o.Log.Warn("memory is no longer watched", "sandbox", l.ID, "error", err)
	}
}

// overLimit remembers for how long a sandbox has been over its memory limit.
type overLimit struct {
	heard  time.Time // when it was last looked at
	over   bool
	since  time.Time // it is over its limit
	asking bool      // the guest, to kill
	asked  time.Time // when it was last done with that
	// peak is the most that was in use until what was killed could have died, and
	// freed what that had of it.
	peak, freed int64
	// low is the least that was in use since the guest was asked, seen first at fell.
	low  int64
	fell time.Time
}

type overAction int

const (
	waitNow overAction = iota
	killNow
	endNow
)

// next says what to do with a sandbox that is about its limit with used bytes.
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
	case now.Sub(o.since) > overAtMost:
		return endNow
	}
	return killNow
}

// patience is how long memory must not have fallen after a kill before the next:
// longer while most of what was killed has not come back. The sandbox's kernel
// lets no process take much more in that time.
func (o *overLimit) patience(used, limit int64) time.Duration {
	switch {
	case o.freed == 0:
		return killPause
	case o.low > o.peak-o.freed/2:
		return givesBack
	case used > o.low+int64(float64(limit)*takesMore):
		return 0
	}
	return settles
}

// ask remembers that the guest is asked to kill when so much is used.
func (o *overLimit) ask(used int64) {
	o.asking, o.peak, o.low, o.freed = true, used, used, 0
}

// killed remembers what a kill frees.
func (o *overLimit) killed(now time.Time, freed int64) {
	o.asking, o.heard, o.asked, o.fell, o.freed = false, now, now, now, freed
}

// freeMemory has the guest kill what is largest, and returns how many bytes
// that held.
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
		s.o.Log.Warn("memory limit reached and nothing could be killed", "sandbox", l.ID, "used", used, "limit", limit, "error", err)
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
