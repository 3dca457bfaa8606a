package lifecycle

import (
	"testing"
	"time"
)

func TestOverLimit(t *testing.T) {
	var o overLimit
	now := time.Unix(1000, 0)
	// over is what happens to a sandbox that is over its limit for a time, and
	// whose guest takes its own time to kill.
	over := func(d, killing time.Duration) overAction {
		for end := now.Add(d); now.Before(end); now = now.Add(5 * time.Millisecond) {
			switch o.next(now) {
			case killNow:
				now = now.Add(killing)
				o.asked = now
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
}
