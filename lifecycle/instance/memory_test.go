package instance

import (
	"testing"
	"time"
)

func TestOverLimit(t *testing.T) {
	var o overLimit
	now := time.Unix(1000, 0)
	// over is what happens to a sandbox that is over its limit for a time, and
	// whose guest takes its own time to kill.
	var freed int64
	over := func(d, killing time.Duration) overAction {
		for end := now.Add(d); now.Before(end); now = now.Add(5 * time.Millisecond) {
			switch o.next(now, 300<<20, 256<<20) {
			case killNow:
				o.ask(300 << 20)
				for until := now.Add(killing); now.Before(until); now = now.Add(5 * time.Millisecond) {
					if o.next(now, 300<<20, 256<<20) != waitNow {
						t.Fatal("the guest was asked again before it had answered")
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
			t.Fatal("it was ended within its time")
		}
		below(2 * time.Second)
	}
	if over(9*time.Second, 3*time.Second) == endNow {
		t.Fatal("it was ended within its time, with a slow guest")
	}
	below(2 * time.Second)
	if over(12*time.Second, 10*time.Millisecond) != endNow {
		t.Error("it was not ended when its time was over")
	}
	below(2 * time.Second)
	if over(15*time.Second, 3*time.Second) != endNow {
		t.Error("with a slow guest, it was not ended when its time was over")
	}
	below(5 * time.Second)
	freed = 200 << 20
	if over(15*time.Second, 10*time.Millisecond) != endNow {
		t.Error("it was not ended although nothing of what was killed came back")
	}
}

// While the memory of a killed process is on its way back, nobody else dies for
// it; one who takes more at that time does.
func TestOverLimitWaitsForWhatWasKilled(t *testing.T) {
	const mb = 1 << 20
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		name  string
		used  int64
		after time.Duration
		want  overAction
	}{
		{"nothing came back yet", 300 * mb, time.Second, waitNow},
		{"a little came back", 290 * mb, time.Second, waitNow},
		{"most came back just now", 150 * mb, time.Second, waitNow},
		{"it never comes back", 360 * mb, givesBack, killNow},
	} {
		var o overLimit
		if o.next(now, 300*mb, 128*mb) != killNow {
			t.Fatal("it does not begin with a kill")
		}
		o.ask(300 * mb)
		o.killed(now, 200*mb)
		o.next(now.Add(time.Millisecond), 360*mb, 128*mb)
		at := now.Add(c.after)
		if got := o.next(at, c.used, 128*mb); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		if got := o.next(at.Add(givesBack), c.used, 128*mb); got != killNow {
			t.Errorf("%s, and no more comes back: got %v", c.name, got)
		}
		if got := o.next(at.Add(settles), 150*mb, 128*mb); c.used == 150*mb && got != killNow {
			t.Errorf("%s, and no more comes: got %v", c.name, got)
		}
	}
}

// One who takes what a killed process gave back dies at once: whoever holds the
// sandbox still meanwhile does so for a time only.
func TestOverLimitKnowsTheNext(t *testing.T) {
	const mb = 1 << 20
	var o overLimit
	now := time.Unix(1000, 0)
	next := func(d time.Duration, used int64) overAction {
		now = now.Add(d)
		return o.next(now, used*mb, 256*mb)
	}
	if next(0, 200) != waitNow || next(5*time.Millisecond, 260) != killNow {
		t.Fatal("it does not begin with a kill")
	}
	o.ask(260 * mb)
	// The answer is slow: meanwhile all comes back, and somebody takes it again.
	for _, used := range []int64{265, 272, 120, 20, 150, 272} {
		if next(50*time.Millisecond, used) != waitNow {
			t.Errorf("somebody was killed at %d MB", used)
		}
	}
	o.killed(now, 240*mb)
	if next(killPause, 272) != killNow {
		t.Error("nobody was killed although somebody took more")
	}
	o.ask(272 * mb)
	o.killed(now, 250*mb)
	for _, used := range []int64{272, 260, 250, 260} { // it comes back slowly, and others move
		if next(killPause, used) != waitNow {
			t.Errorf("somebody was killed at %d MB for what is on its way back", used)
		}
	}
}
