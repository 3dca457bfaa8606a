package warm

import (
	"testing"
	"time"
)

// Each failure has the next attempt wait twice as long, and after the last one none is
// made any more.
func TestEachFailureHasTheNextAttemptWaitLonger(t *testing.T) {
	if !(failures{}).over(time.Now()) {
		t.Error("what has not failed has to wait")
	}
	at, wait := time.Now(), poolFailed
	for count := 1; count < poolTries; count++ {
		f := failures{count, at}
		if f.over(at.Add(wait)) || !f.over(at.Add(wait+1)) {
			t.Errorf("after %d failures the wait is %v, want %v", count, f.rest(), wait)
		}
		wait *= 2
	}
	if (failures{poolTries, at}).over(at.Add(1000 * time.Hour)) {
		t.Errorf("after %d failures there is another attempt", poolTries)
	}
}
