package instance

import (
	"testing"
	"time"
)

func TestOverLimit(t *testing.T) {
	var o overLimit
	now := time.Unix(1000, 0)
	// over lets a sandbox be over its limit for a time, with a guest that takes a given time to kill.
	var freed int64
	over := func(d, killing time.Duration) overAction {
		for end := now.Add(d); now.Before(end); now = now.Add(5 * time.Millisecond) {
			switch o.next(now, 300<<20, 256<<20) {
			case killNow:
				o.ask(now, 300<<20)
				for until := now.Add(killing); now.Before(until); now = now.Add(5 * time.Millisecond) {
					if o.next(now, 300<<20, 256<<20) != waitNow {
						t.Fatal("the guest was called again before it had answered")
					}
				}
				o.killed(now, freed)
			case endNow:
				return endNow
			}
		}
		return waitNow
	}
	below := func(d time.Duration) { now = now.Add(d) }
	for range 5 {
		if over(9*time.Second, 10*time.Millisecond) == endNow {
			t.Fatal("it was ended too early")
		}
		below(2 * time.Second)
	}
	if over(9*time.Second, 3*time.Second) == endNow {
		t.Fatal("it was ended too early with a slow guest")
	}
	below(2 * time.Second)
	if over(12*time.Second, 10*time.Millisecond) != endNow {
		t.Error("it was not ended in time")
	}
	below(2 * time.Second)
	if over(15*time.Second, 3*time.Second) != endNow {
		t.Error("it was not ended in time with a slow guest")
	}
	below(5 * time.Second)
	freed = 200 << 20
	if over(15*time.Second, 10*time.Millisecond) != endNow {
		t.Error("it was not ended although the kills freed no memory")
	}
}

// While the memory of a killed process is being freed no other process is killed, unless usage grows
// meanwhile.
func TestOverLimitWaitsForFreedMemory(t *testing.T) {
	const mb = 1 << 20
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		name  string
		used  int64
		after time.Duration
		want  overAction
	}{
		{"nothing was freed yet", 300 * mb, time.Second, waitNow},
		{"a little was freed", 290 * mb, time.Second, waitNow},
		{"most was freed just now", 150 * mb, time.Second, waitNow},
		{"it is never freed", 360 * mb, givesBack, killNow},
	} {
		var o overLimit
		if o.next(now, 300*mb, 128*mb) != killNow {
			t.Fatal("the first step is not a kill")
		}
		o.ask(now, 300*mb)
		o.killed(now, 200*mb)
		o.next(now.Add(time.Millisecond), 360*mb, 128*mb)
		at := now.Add(c.after)
		if got := o.next(at, c.used, 128*mb); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		if got := o.next(at.Add(givesBack), c.used, 128*mb); got != killNow {
			t.Errorf("%s, and no more is freed: got %v", c.name, got)
		}
		if got := o.next(at.Add(settles), 150*mb, 128*mb); c.used == 150*mb && got != killNow {
			t.Errorf("%s, and usage does not grow: got %v", c.name, got)
		}
	}
}

// A process that allocates the memory that a killed one freed is killed at once.
func TestOverLimitKillsTheNextProcess(t *testing.T) {
	const mb = 1 << 20
	var o overLimit
	now := time.Unix(1000, 0)
	next := func(d time.Duration, used int64) overAction {
		now = now.Add(d)
		return o.next(now, used*mb, 256*mb)
	}
	if next(0, 200) != waitNow || next(5*time.Millisecond, 260) != killNow {
		t.Fatal("the first step is not a kill")
	}
	o.ask(now, 260*mb)
	// The guest answers slowly: meanwhile all memory is freed and another process allocates it.
	for _, used := range []int64{265, 272, 120, 20, 150, 272} {
		if next(50*time.Millisecond, used) != waitNow {
			t.Errorf("a process was killed at %d MB", used)
		}
	}
	o.killed(now, 240*mb)
	if next(killPause, 272) != killNow {
		t.Error("no process was killed although usage grew")
	}
	o.ask(now, 272*mb)
	o.killed(now, 250*mb)
	for _, used := range []int64{272, 260, 250, 260} { // it is freed slowly, while other processes allocate a little
		if next(killPause, used) != waitNow {
			t.Errorf("a process was killed at %d MB for memory that is being freed", used)
		}
	}
}

// On a crowded host, where a kill takes long, its memory comes back late. Nothing else is killed, and the
// sandbox is not ended, before that.
func TestOverLimitOfASlowSandbox(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct{ took, back time.Duration }{
		{10 * time.Millisecond, givesBack},
		{givesBack / slowBy, givesBack},
		{300 * time.Millisecond, 6 * time.Second},
		{700 * time.Millisecond, 14 * time.Second},
		{10 * time.Second, slowest},
	} {
		var o overLimit
		now := time.Unix(1000, 0)
		kill := func() {
			o.ask(now, 300*mb)
			for end := now.Add(c.took); now.Before(end); now = now.Add(5 * time.Millisecond) {
				o.next(now, 300*mb, 256*mb)
			}
			o.killed(now, 200*mb)
		}
		if o.next(now, 300*mb, 256*mb) != killNow {
			t.Fatal("the first step is not a kill")
		}
		kill()
		for end := now.Add(c.back); now.Before(end); now = now.Add(5 * time.Millisecond) {
			if got := o.next(now, 300*mb, 256*mb); got != waitNow {
				t.Fatalf("a kill took %v: got %v %v before its memory is due", c.took, got, end.Sub(now))
			}
		}
		var last overAction
		for end := now.Add(2 * slowest); now.Before(end) && last != endNow; now = now.Add(5 * time.Millisecond) {
			if last = o.next(now, 300*mb, 256*mb); last == killNow {
				kill()
			}
		}
		if last != endNow {
			t.Errorf("a kill took %v: the sandbox stays over its limit and is not ended", c.took)
		}
	}
}
