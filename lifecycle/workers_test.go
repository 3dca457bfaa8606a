package lifecycle

import (
	"sync"
	"sync/atomic"
	"testing"
)

// What begins while workers are closed is either waited for, or does not begin.
func TestNoWorkerBeginsOnceTheyAreClosed(t *testing.T) {
	for range 100 {
		var w workers
		var running atomic.Int64
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range 4 {
			wg.Go(func() {
				<-start
				w.Go(func() { running.Add(1); running.Add(-1) })
			})
		}
		close(start)
		w.close()
		if n := running.Load(); n != 0 {
			t.Fatalf("%d workers run after all have been waited for", n)
		}
		if w.Go(func() { t.Error("a worker began") }) || w.begin() {
			t.Fatal("a worker may begin")
		}
		done := false
		if w.must(func() { done = true }); !done {
			t.Fatal("what must be done was not done")
		}
		wg.Wait()
	}
}
