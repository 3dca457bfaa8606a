package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
)

var densityJobs = []job{
	{names: []string{"idle_memory_mb", "idle_memory_free_mb", "idle_cpu_percent", "exec_after_idle"}, own: true, usual: 200, quick: 30, run: idle},
	{names: []string{"live_sandboxes"}, usual: 1000, quick: 50, run: live},
	{names: []string{"create_rate", "create_only_rate"}, usual: 20, quick: 5, run: createRate},
	{names: []string{"leaks"}, own: true, usual: 100, quick: 20, run: leaks},
}

const (
	// settle is how long sandboxes are left alone before their usage is measured.
	settle = 12 * time.Second
	// watched is how long their processor time is measured.
	watched = 10 * time.Second
	// workers create sandboxes at the same time.
	workers = 4
	// eachMB is the expected memory of a sandbox, vmMB that of a virtual machine, and spareMB
	// what remains free, if memory decides how many there are.
	eachMB, vmMB, spareMB = 16, 192, 3072
)

// many is how many live at once: as requested, or as is usual and memory allows.
func (b *bed) many(usual int) int {
	if b.o.Sandboxes > 0 {
		return b.o.Sandboxes
	}
	each := eachMB
	if b.o.Lab.Engine == "microvm" || b.o.Lab.Engine == bothy.EngineAuto {
		each = vmMB
	}
	return max(1, min(usual, int(bench.AvailableMB()-spareMB)/each))
}

// fill makes so many sandboxes, each of which has answered a command. The error is the first
// failure; all others that could be made exist.
func fill(ctx context.Context, t bench.Target, count int) (ids []string, err error) {
	var mu sync.Mutex
	_, err = spread(count, func(int) error {
		sb, _, err := t.Create(ctx, bothy.SandboxCreate{})
		if err != nil {
			return err
		}
		mu.Lock()
		ids = append(ids, sb.ID)
		mu.Unlock()
		_, err = t.Run(ctx, sb.ID, bench.True)
		return err
	})
	return ids, err
}

// spread calls f for each number below count, a few at a time, and returns how often that
// succeeded, and the first failure.
func spread(count int, f func(int) error) (ok int, err error) {
	var all sync.WaitGroup
	var next, good atomic.Int64
	var first atomic.Pointer[error]
	for range workers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					first.CompareAndSwap(nil, &err)
					continue
				}
				good.Add(1)
			}
		})
	}
	all.Wait()
	if p := first.Load(); p != nil {
		err = *p
	}
	return int(good.Load()), err
}

func clear(t bench.Target, ids []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	_, _ = spread(len(ids), func(i int) error { return t.Client.Sandboxes.Terminate(ctx, ids[i]) })
}

// idle measures what idle sandboxes use of memory, in two ways, and of the processors; and how
// long the first command takes after that.
func idle(ctx context.Context, b *bed, n int) error {
	s, err := b.server(ctx)
	if err != nil {
		return err
	}
	count := b.many(n)
	before := bench.AvailableMB()
	ids, err := fill(ctx, s.Target, count)
	defer clear(s.Target, ids)
	if err != nil {
		return err
	}
	bench.Sleep(ctx, settle)
	free := (before - bench.AvailableMB()) / float64(count)
	used, err := s.CPUSeconds(ids[0])
	if err != nil {
		return err
	}
	begun := time.Now()
	bench.Sleep(ctx, watched)
	after, err := s.CPUSeconds(ids[0])
	if err != nil {
		return err
	}
	percent := 100 * (after - used) / time.Since(begun).Seconds()
	var each []float64
	for _, id := range ids {
		mb, err := s.PSSMB(id)
		if err != nil {
			return err
		}
		each = append(each, mb)
	}
	var woken []float64
	for _, id := range ids {
		begun := time.Now()
		if err := s.Answer(ctx, id); err != nil {
			return err
		}
		woken = append(woken, bench.Since(begun))
	}
	b.results = append(b.results, bench.Single("idle_memory_mb", "MB", each), bench.Single("idle_memory_free_mb", "MB", []float64{free}),
		bench.Single("idle_cpu_percent", "%", []float64{percent}),
		bench.Single("exec_after_idle", "ms", woken))
	return nil
}

// live counts how many sandboxes answer a command while all of them live.
func live(ctx context.Context, b *bed, n int) error {
	t, err := b.cold(ctx)
	if err != nil {
		return err
	}
	if b.o.N > 0 {
		n = b.o.N
	}
	count := b.many(n)
	before := bench.Load()
	ids, err := fill(ctx, t, count)
	defer clear(t, ids)
	answered, failed := spread(len(ids), func(i int) error { return t.Answer(ctx, ids[i]) })
	r := bench.Compare(bench.Measure{Name: "live_sandboxes", Unit: "sandboxes"}, []string{"bothy"},
		map[string]*bench.Series{"bothy": {N: count, OK: answered, Samples: []float64{float64(answered)}}}, before, bench.Load())
	b.results = append(b.results, r)
	return errors.Join(err, failed)
}

// createRate makes, uses and ends sandboxes for n seconds, as fast as possible, and then makes
// and ends as many as it can without using them.
func createRate(ctx context.Context, b *bed, n int) error {
	t, err := b.cold(ctx)
	if err != nil {
		return err
	}
	return errors.Join(
		b.rate("create_rate", n, func() error {
			_, err := t.Interactive(ctx)
			return err
		}),
		b.rate("create_only_rate", n, func() error {
			_, end, err := t.Create(ctx, bothy.SandboxCreate{})
			if err == nil {
				end()
			}
			return err
		}),
	)
}

// rate counts how often once succeeds per second, for n seconds.
func (b *bed) rate(name string, n int, once func() error) error {
	before, begun := bench.Load(), time.Now()
	perSecond := make([]atomic.Int64, n)
	var made, tried atomic.Int64
	_, err := spread(workers, func(int) error {
		for time.Since(begun) < time.Duration(n)*time.Second {
			tried.Add(1)
			if err := once(); err != nil {
				return err
			}
			made.Add(1)
			if second := int(time.Since(begun).Seconds()); second < n {
				perSecond[second].Add(1)
			}
		}
		return nil
	})
	took := time.Since(begun).Seconds()
	s := &bench.Series{N: int(tried.Load()), OK: int(made.Load())}
	for i := range perSecond {
		s.Samples = append(s.Samples, float64(perSecond[i].Load()))
	}
	r := bench.Compare(bench.Measure{Name: name, Unit: "per second"}, []string{"bothy"}, map[string]*bench.Series{"bothy": s}, before, bench.Load())
	r.Value = float64(made.Load()) / took
	b.results = append(b.results, r)
	return err
}

// leaks makes and ends n sandboxes, and counts what has increased.
func leaks(ctx context.Context, b *bed, n int) error {
	s, err := b.server(ctx)
	if err != nil {
		return err
	}
	// The first ones leave what stays permanently: connections, threads.
	if _, err := spread(2*workers, func(int) error { _, err := s.Interactive(ctx); return err }); err != nil {
		return err
	}
	before, err := s.Holdings()
	if err != nil {
		return err
	}
	if _, err := spread(n, func(int) error { _, err := s.Interactive(ctx); return err }); err != nil {
		return err
	}
	// What is being released gets some time.
	var sum float64
	var notes []string
	for deadline := time.Now().Add(leakPatience); ; bench.Sleep(ctx, leakLook) {
		after, err := s.Holdings()
		if err != nil {
			return err
		}
		if sum, notes = more(before, after); sum == 0 || time.Now().After(deadline) || ctx.Err() != nil {
			break
		}
	}
	r := bench.Single("leaks", "objects", []float64{sum})
	r.Notes = append([]string{fmt.Sprintf("after %d sandboxes", n)}, notes...)
	b.results = append(b.results, r)
	return nil
}

const (
	leakPatience = 20 * time.Second
	leakLook     = 500 * time.Millisecond
	// restless is how many threads and descriptors come and go by themselves: the runtime keeps
	// threads that were once needed at the same time.
	restless = 16
)

// more adds up what has increased.
func more(before, after map[string]int) (sum float64, notes []string) {
	for _, what := range slices.Sorted(maps.Keys(after)) {
		n := after[what] - before[what]
		if what == "threads" || what == "descriptors" {
			n -= restless
		}
		if n > 0 {
			sum += float64(n)
		}
		notes = append(notes, fmt.Sprintf("%d %s, %d before", after[what], what, before[what]))
	}
	return sum, notes
}
