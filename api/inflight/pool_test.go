package inflight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bothy-dev/bothy"
)

func pool(b Bounds) *Pool {
	if b.Waiting == 0 {
		b.Waiting = 100
	}
	if b.Wait == 0 {
		b.Wait = 10 * time.Second
	}
	return NewPool("requests", b)
}

func must(t *testing.T, p *Pool, project string, n int64) {
	t.Helper()
	if got, err := p.Acquire(t.Context(), project, n); err != nil || got != n {
		t.Fatalf("%s: %d, %v", project, got, err)
	}
}

func refused(t *testing.T, p *Pool, project string, n int64) {
	t.Helper()
	_, err := p.Acquire(t.Context(), project, n)
	e := bothy.AsError(err)
	if err == nil || e.Code != bothy.CodeRateLimited || e.RetryAfter <= 0 || e.Hint == "" {
		t.Fatalf("%s got %d: %v", project, n, err)
	}
}

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(Bounds{Total: 10, Project: 4, Reserved: 3})
		must(t, p, "a", 4)
		refused(t, p, "a", 1) // its own bound
		must(t, p, "b", 3)
		refused(t, p, "b", 1) // what tenants may have in all
		must(t, p, bothy.DefaultProject, 3)
		refused(t, p, bothy.DefaultProject, 1)
		if used, n := p.Stats(); used != 10 || n != 3 {
			t.Errorf("%d are held, %d were refused", used, n)
		}
		p.Release("a", 4)
		must(t, p, bothy.DefaultProject, 4) // the operator may have everything
		for project, n := range map[string]int64{"b": 3, bothy.DefaultProject: 7} {
			p.Release(project, n)
		}
		if used, _ := p.Stats(); used != 0 || len(p.projects) != 0 || p.tenants != 0 {
			t.Errorf("%d are held by %v", used, p.projects)
		}
	})
}

func TestWhatNeverFitsIsCut(t *testing.T) {
	p := pool(Bounds{Total: 10, Project: 4})
	if got, err := p.Acquire(t.Context(), "a", 100); got != 4 || err != nil {
		t.Fatalf("%d, %v", got, err)
	}
}

func TestWaitersAreServedInOrderAndProjectsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(Bounds{Total: 1, Project: 1})
		must(t, p, "holder", 1)
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		for _, name := range []string{"a1", "a2", "a3", "b1", "c1", "b2"} {
			wg.Go(func() {
				if _, err := p.Acquire(t.Context(), name[:1], 1); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				p.Release(name[:1], 1)
			})
			synctest.Wait()
		}
		p.Release("holder", 1)
		wg.Wait()
		if got := fmt.Sprint(order); got != "[a1 b1 c1 a2 b2 a3]" {
			t.Errorf("the order was %s", got)
		}
	})
}

// A large request is not overtaken forever by small ones of other projects. The operator's requests do
// not wait behind it.
func TestALargeRequestGetsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(Bounds{Total: 10, Project: 8, Reserved: 2})
		must(t, p, "small", 4)
		var large, late atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() { must(t, p, "large", 8); large.Store(true) })
		synctest.Wait()
		wg.Go(func() { must(t, p, "small", 1); late.Store(true) })
		synctest.Wait()
		if large.Load() || late.Load() {
			t.Fatalf("large %v, late %v", large.Load(), late.Load())
		}
		must(t, p, bothy.DefaultProject, 2)
		p.Release("small", 4)
		synctest.Wait()
		if !large.Load() || late.Load() {
			t.Fatalf("large %v, late %v", large.Load(), late.Load())
		}
		p.Release("large", 8)
		wg.Wait()
	})
}

func TestACancelledWaiterBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(Bounds{Total: 10, Project: 10, Wait: time.Hour})
		must(t, p, "a", 4)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := p.Acquire(ctx, "large", 8); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() { must(t, p, "b", 6) })
		synctest.Wait()
		cancel()
		wg.Wait()
	})
}

func TestTheQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(Bounds{Total: 1, Project: 1, Waiting: 2, Wait: time.Minute})
		must(t, p, "a", 1)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _, _ = p.Acquire(ctx, "a", 1) })
		}
		synctest.Wait()
		began := time.Now()
		refused(t, p, "a", 1)
		if time.Since(began) != 0 {
			t.Error("it waited")
		}
		cancel()
		wg.Wait()
	})
}

func TestMemoryGrowsAndIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(Bounds{Total: 100, Project: 50})
		m := p.Memory("a")
		for range 10 { // more than there is: a request may have all, and is then not counted
			if err := m.Hold(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
		}
		if used, _ := p.Stats(); used != 50 {
			t.Errorf("%d bytes are held", used)
		}
		other := p.Memory("a")
		if err := other.Hold(t.Context(), 1); bothy.ErrorCode(err) != bothy.CodeRateLimited {
			t.Errorf("%v", err)
		}
		m.Keep(20)
		if err := other.Hold(t.Context(), 30); err != nil {
			t.Error(err)
		}
		m.End()
		other.End()
		if err := m.Hold(t.Context(), 10); err != nil {
			t.Error(err)
		}
		if used, _ := p.Stats(); used != 0 {
			t.Errorf("%d bytes are held at the end", used)
		}
	})
}

func TestMemoryIsGivenBack(t *testing.T) {
	p := pool(Bounds{Total: 100, Project: 50})
	m := p.Memory("a")
	used := func(want int64) {
		t.Helper()
		if got, _ := p.Stats(); got != want {
			t.Errorf("%d bytes are held, and not %d", got, want)
		}
	}
	for range 7 {
		if err := m.Hold(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
	}
	used(50)
	m.Give(20) // the 20 that are not counted
	used(50)
	m.Give(10)
	used(40)
	m.Give(1000)
	used(0)
	if err := m.Hold(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	used(10)
	m.End()
	m.Give(10)
	used(0)
}

func TestAJobHasALimit(t *testing.T) {
	p := pool(Bounds{Total: 100 << 20, Project: 50 << 20})
	m := p.Job("a")
	for range 5 {
		if err := m.Hold(t.Context(), 10<<20); err != nil {
			t.Fatal(err)
		}
	}
	err := m.Hold(t.Context(), 1)
	if e := bothy.AsError(err); err == nil || e.Code != bothy.CodeTooLarge || e.Hint == "" || !strings.Contains(e.Detail, "50 MB") {
		t.Errorf("%v", err)
	}
	m.Give(1)
	if err := m.Hold(t.Context(), 1); err != nil {
		t.Error(err)
	}
	m.End()
	if used, _ := p.Stats(); used != 0 {
		t.Errorf("%d bytes are held at the end", used)
	}
}

// Concurrent requests never exceed the limits, and release everything.
func TestManyAtOnce(t *testing.T) {
	b := Bounds{Total: 100, Project: 40, Reserved: 20, Waiting: 1000, Wait: time.Minute}
	p := NewPool("requests", b)
	held := map[string]*atomic.Int64{bothy.DefaultProject: {}, "a": {}, "b": {}, "c": {}}
	var wg sync.WaitGroup
	for project, mine := range held {
		for range 16 {
			wg.Go(func() {
				for range 200 {
					ctx, cancel := context.WithCancel(t.Context())
					if rand.IntN(10) == 0 {
						cancel()
					}
					n, err := p.Acquire(ctx, project, rand.Int64N(30)+1)
					cancel()
					if err != nil {
						continue
					}
					if now := mine.Add(n); now > p.most(project) {
						t.Errorf("%s holds %d", project, now)
					}
					if used, _ := p.Stats(); used > b.Total {
						t.Errorf("%d are held", used)
					}
					mine.Add(-n)
					p.Release(project, n)
				}
			})
		}
	}
	wg.Wait()
	if used, _ := p.Stats(); used != 0 || len(p.projects) != 0 || p.turn.Len() != 0 {
		t.Errorf("%d are held by %v at the end", used, p.projects)
	}
}
