package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle"
)

// newLimitedWorld is a world with limits on concurrent starts and on sandboxes, and a queue.
func newLimitedWorld(t *testing.T, atOnce, most int, wait time.Duration) *world {
	t.Helper()
	w := newWorld(t)
	w.closeServer()
	w.change = func(o *lifecycle.Options) { o.StartsAtOnce, o.MaxSandboxes, o.AdmissionWait = atOnce, most, wait }
	w.open()
	return w
}

func TestBurstIsServedInOrderAndFairly(t *testing.T) {
	const atOnce, many, few = 8, 1000, 10
	w := newLimitedWorld(t, atOnce, 2000, time.Minute)
	var starting, most, started, lastOfFew atomic.Int64
	open := make(chan struct{})
	w.host.FailStart = func(string) error {
		<-open
		defer starting.Add(-1)
		if n := starting.Add(1); n > most.Load() {
			most.Store(n)
		}
		return nil
	}
	var wg sync.WaitGroup
	create := func(project string, n *atomic.Int64) {
		wg.Go(func() {
			if _, err := w.Create(as(t, project), bothy.SandboxCreate{}); err != nil {
				t.Errorf("%s: %v", project, err)
			}
			at := started.Add(1)
			if n != nil && at > n.Load() {
				n.Store(at)
			}
		})
	}
	for range many {
		create("greedy", nil)
	}
	eventually(t, "everybody waits", func() bool { return w.Waiting() == many-atOnce })
	for range few {
		create("modest", &lastOfFew)
	}
	eventually(t, "everybody waits", func() bool { return w.Waiting() == many+few-atOnce })
	close(open)
	wg.Wait()
	if n := most.Load(); n > atOnce {
		t.Errorf("%d started at once, but at most %d may", n, atOnce)
	}
	// Projects take turns, so every second start is theirs; otherwise they would come last. The bound
	// is loose because a busy machine changes the order of goroutines.
	if n := lastOfFew.Load(); n > many/2 {
		t.Errorf("the last of %d waited for %d of the others", few, n)
	}
	if machines := len(w.host.IDs()); w.Live() != many+few || machines != many+few || w.Waiting() != 0 {
		t.Errorf("%d are live, on %d machines, and %d wait", w.Live(), machines, w.Waiting())
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	w := newLimitedWorld(t, 1, 0, time.Minute)
	open := make(chan struct{})
	var started atomic.Int64
	w.host.FailStart = func(string) error {
		started.Add(1)
		<-open
		return nil
	}
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := w.Create(w.me(), bothy.SandboxCreate{Name: fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		})
		eventually(t, "it waits", func() bool { return started.Load() == 1 && w.Waiting() == i })
	}
	w.guests.mu.Lock()
	w.guests.onAdopt = func(_ context.Context, id bothy.Identity) error {
		mu.Lock()
		defer mu.Unlock()
		var n int
		fmt.Sscan(id.Hostname, &n)
		order = append(order, n)
		return nil
	}
	w.guests.mu.Unlock()
	close(open)
	wg.Wait()
	for i, n := range order {
		if i != n {
			t.Fatalf("served in the order %v", order)
		}
	}
}

func TestFullHost(t *testing.T) {
	t.Run("refuses at once", func(t *testing.T) {
		w := newLimitedWorld(t, 4, 2, 0)
		w.create(bothy.SandboxCreate{})
		w.create(bothy.SandboxCreate{})
		_, err := w.Create(w.me(), bothy.SandboxCreate{})
		wantCode(t, err, bothy.CodeCapacity)
		if bothy.AsError(err).RetryAfter == 0 {
			t.Error("there is no retry_after")
		}
	})
	t.Run("admits a waiter when another sandbox ends", func(t *testing.T) {
		w := newLimitedWorld(t, 4, 2, time.Minute)
		first := w.create(bothy.SandboxCreate{})
		w.create(bothy.SandboxCreate{})
		got := make(chan error, 1)
		go func() {
			_, err := w.Create(w.me(), bothy.SandboxCreate{})
			got <- err
		}()
		eventually(t, "it waits", func() bool { return w.Waiting() == 1 })
		if err := w.Terminate(w.me(), first.ID); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
	t.Run("refuses a waiter after a time", func(t *testing.T) {
		w := newLimitedWorld(t, 4, 1, time.Minute)
		w.create(bothy.SandboxCreate{TimeoutSeconds: new(int)})
		got := make(chan error, 1)
		go func() {
			_, err := w.Create(w.me(), bothy.SandboxCreate{})
			got <- err
		}()
		eventually(t, "it waits", func() bool { return w.Waiting() == 1 })
		w.clock.pass(2 * time.Minute)
		wantCode(t, <-got, bothy.CodeCapacity)
		if n := w.Waiting(); n != 0 {
			t.Errorf("%d still wait", n)
		}
	})
	t.Run("forgets a cancelled waiter", func(t *testing.T) {
		w := newLimitedWorld(t, 4, 1, time.Minute)
		first := w.create(bothy.SandboxCreate{})
		ctx, cancel := context.WithCancel(w.me())
		got := make(chan error, 1)
		go func() {
			_, err := w.Create(ctx, bothy.SandboxCreate{})
			got <- err
		}()
		eventually(t, "it waits", func() bool { return w.Waiting() == 1 })
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if err := w.Terminate(w.me(), first.ID); err != nil {
			t.Fatal(err)
		}
		w.create(bothy.SandboxCreate{}) // its place was released
	})
	t.Run("admits a waiter when there is memory", func(t *testing.T) {
		var free atomic.Int64
		w := newWorld(t)
		w.closeServer()
		w.free, w.minFree = func() int { return int(free.Load()) }, 1000
		w.change = func(o *lifecycle.Options) { o.AdmissionWait = time.Minute }
		w.open()
		got := make(chan error, 1)
		go func() {
			_, err := w.Create(w.me(), bothy.SandboxCreate{})
			got <- err
		}()
		eventually(t, "it waits", func() bool { return w.Waiting() == 1 })
		free.Store(2000)
		w.clock.pass(time.Second)
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
	t.Run("refuses waiters when the server stops", func(t *testing.T) {
		w := newLimitedWorld(t, 4, 1, time.Minute)
		w.create(bothy.SandboxCreate{})
		got := make(chan error, 1)
		go func() {
			_, err := w.Create(w.me(), bothy.SandboxCreate{})
			got <- err
		}()
		eventually(t, "it waits", func() bool { return w.Waiting() == 1 })
		w.Service.Close()
		wantCode(t, <-got, bothy.CodeShuttingDown)
	})
}

// Whether a host could become full counts what runs, what starts and what waits.
func TestTightHost(t *testing.T) {
	w := newWorld(t)
	w.free, w.minFree = func() int { return 4 * bothy.DefaultMemoryMB }, bothy.DefaultMemoryMB
	w.reopen(func(o *lifecycle.Options) { o.MaxSandboxes = 3 })
	w.create(bothy.SandboxCreate{})
	for more, want := range map[int]bool{1: false, 2: false, 3: true} {
		if got := w.Tight(more); got != want {
			t.Errorf("for %d sandboxes more of 3, of which 1 runs: %v", more, got)
		}
	}
	w.reopen(func(o *lifecycle.Options) { o.MaxSandboxes = 0 })
	for more, want := range map[int]bool{3: false, 4: true} {
		if got := w.Tight(more); got != want {
			t.Errorf("for the memory of %d sandboxes more: %v", more, got)
		}
	}
}
