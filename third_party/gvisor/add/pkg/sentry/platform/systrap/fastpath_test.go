package systrap

import (
	"runtime"
	"testing"
	"testing/synctest"
)

func TestDelayFastPath(t *testing.T) {
	t.Cleanup(func() { DelayFastPath(0, nil) })
	synctest.Test(t, func(t *testing.T) {
		s := fastPathState{monitorWakeup: make(chan struct{}, 1)}
		asked, spread, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
		DelayFastPath(runtime.NumCPU()+1, func() {
			close(asked)
			<-spread
		})
		if got, want := numCPU(), runtime.NumCPU()+1; got != want {
			t.Errorf("there are %d processors, not %d", got, want)
		}
		go func() {
			s.delay()
			close(over)
		}()
		synctest.Wait()
		if isClosed(asked) {
			t.Error("it is asked for processors before a program runs")
		}
		s.recordActivity()
		synctest.Wait()
		if !isClosed(asked) || isClosed(over) {
			t.Error("a program runs, and nobody waits for processors")
		}
		close(spread)
		synctest.Wait()
		if !isClosed(over) {
			t.Error("there are processors, and somebody waits for them")
		}
	})
	DelayFastPath(0, nil)
	(&fastPathState{}).delay() // does not wait
	if got := numCPU(); got != runtime.NumCPU() {
		t.Errorf("there are %d processors, not %d", got, runtime.NumCPU())
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
