package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func enter(t *testing.T, g *Gate) (leave func()) {
	t.Helper()
	leave, err := g.Enter(t.Context(), "sbx")
	if err != nil {
		t.Fatal(err)
	}
	return leave
}

// A sandbox is parked at the first moment at which no request is under way, and requests that
// come from then on wait.
func TestGateParksBetweenRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{}
		first := enter(t, g)
		parked := make(chan func(), 1)
		go func() { parked <- g.Park(t.Context(), "sbx") }()
		synctest.Wait()
		second := enter(t, g) // it is not parked yet
		first()
		synctest.Wait()
		if len(parked) > 0 {
			t.Fatal("it is parked while a request is under way")
		}
		second()
		// The next one comes before whoever parks it has run.
		entered := make(chan func(), 1)
		go func() { entered <- enter(t, g) }()
		unpark := <-parked
		synctest.Wait()
		if len(entered) > 0 {
			t.Fatal("a request got in while it is parked")
		}
		unpark()
		(<-entered)()
		if len(g.all) > 0 {
			t.Errorf("there is left %v", g.all)
		}
	})
}

// Requests that do not end are not waited for for ever, and do not keep others waiting for long.
func TestGateDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, begun := &Gate{}, time.Now()
		leave := enter(t, g)
		time.AfterFunc(idlePatience-time.Second, func() { enter(t, g)() })
		unpark := g.Park(t.Context(), "sbx")
		if got := time.Since(begun); got != idlePatience+endPatience {
			t.Errorf("it is parked after %s", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := g.Enter(ctx, "sbx"); err == nil {
			t.Error("a request got in while it is parked")
		}
		unpark()
		unpark() // which does nothing
		leave()
		if len(g.all) > 0 {
			t.Errorf("there is left %v", g.all)
		}
	})
}
