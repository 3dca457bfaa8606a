package entry

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestGivingLooksOnlyWhenAllMayBeGone(t *testing.T) {
	w := watch{hurry: make(chan struct{}, 1)}
	w.most.Store(100)
	looks := 0
	used := func() int64 { looks++; return 40 }
	for range 59 {
		w.giving(1, used)
	}
	if looks != 1 {
		t.Errorf("it read the usage %d times with 59 of 60 left", looks)
	}
	w.giving(2, used)
	if looks != 2 || len(w.hurry) > 0 {
		t.Errorf("it read the usage %d times and called the watch %d times when nothing may be left", looks, len(w.hurry))
	}
}

func TestLooksAreRareWhileNothingChanges(t *testing.T) {
	if !notifiesAllocations { // every read may be the last in time
		if again := nextCheck(calm, 256<<20, 256<<20); again != nextCheck(0, 256<<20, 0) {
			t.Errorf("the watch, which gets no notification, pauses for %v", again)
		}
		return
	}
	const left = 256 << 20
	pause := nextCheck(0, left, 0)
	if pause > time.Second*left/fastest {
		t.Fatalf("the first pause is %v, in which memory can run out", pause)
	}
	for range 10 {
		next := nextCheck(pause, left, left+little)
		if next < pause {
			t.Fatalf("%v is followed by %v while nothing changes", pause, next)
		}
		pause = next
	}
	if pause != calm {
		t.Errorf("the pause grows to %v, want %v", pause, calm)
	}
	for _, before := range []int64{left + little + 1, left - little - 1} {
		if soon := nextCheck(pause, left, before); soon != nextCheck(0, left, 0) {
			t.Errorf("the pause is %v after the use of memory has changed", soon)
		}
	}
}

func TestGivingWaitsForTheWatch(t *testing.T) {
	for name, see := range map[string]func(w *watch, used *atomic.Int64){
		"that stops everybody": func(w *watch, _ *atomic.Int64) { w.holding.Store(true) },
		"that frees memory":    func(_ *watch, used *atomic.Int64) { used.Store(99) },
		"that allows more":     func(w *watch, _ *atomic.Int64) { w.most.Store(200) },
		"that does not come":   func(*watch, *atomic.Int64) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watch{hurry: make(chan struct{}, 1)}
				w.most.Store(100)
				var inUse atomic.Int64
				inUse.Store(101)
				go func() {
					<-w.hurry
					time.Sleep(10 * time.Millisecond)
					see(&w, &inUse)
				}()
				begun := time.Now()
				w.giving(1, inUse.Load)
				if took := time.Since(begun); took < 10*time.Millisecond || took > lateAtMost {
					t.Errorf("waited %s", took)
				}
			})
		})
	}
}
