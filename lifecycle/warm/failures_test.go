package warm

import (
	"testing"
	"time"
)

// Each failure doubles the wait before the next attempt, and after the last one there are no more.
func TestFailuresBackOff(t *testing.T) {
	if !(failures{}).mayRetry(time.Now()) {
		t.Error("there is a wait before the first failure")
	}
	at, wait := time.Now(), poolFailed
	for count := 1; count < poolTries; count++ {
		f := failures{count, at}
		if f.mayRetry(at.Add(wait)) || !f.mayRetry(at.Add(wait+1)) {
			t.Errorf("after %d failures the wait is %v, want %v", count, f.pause(), wait)
		}
		wait *= 2
	}
	if (failures{poolTries, at}).mayRetry(at.Add(1000 * time.Hour)) {
		t.Errorf("there is another attempt after %d failures", poolTries)
	}
}
