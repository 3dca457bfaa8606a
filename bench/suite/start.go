package suite

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy/bench"
)

var startJobs = []job{
	{names: []string{bench.CreatePool, bench.CreateExecPool}, usual: 30, quick: 5, run: startPool},
	{names: []string{bench.CreateExecCold}, own: true, usual: 20, quick: 3, run: startCold},
	{names: []string{burstCold}, own: true, usual: 1, quick: 1, run: startBurst},
	{names: []string{"sequential_tti"}, usual: 100, quick: 10, run: sequential},
	{names: []string{"staggered_tti"}, usual: 100, quick: 20, run: staggered},
	{names: []string{"burst_tti"}, usual: 100, quick: 100, run: burst},
}

const (
	burstCold = "burst100_create_exec_cold"
	// atOnce is the size of a burst, and between the interval of staggered starts.
	atOnce  = 100
	between = 200 * time.Millisecond
)

func startPool(ctx context.Context, b *bed, n int) error {
	t, err := b.warm(ctx)
	if err != nil {
		return err
	}
	subjects := append([]bench.Subject{bench.StartPool(t)}, b.starters(ctx)...)
	return b.compare(ctx, n, []string{bench.CreatePool, bench.CreateExecPool}, subjects...)
}

func startCold(ctx context.Context, b *bed, n int) error {
	t, err := b.cold(ctx)
	if err != nil {
		return err
	}
	subjects := append([]bench.Subject{bench.StartCold(t)}, b.starters(ctx)...)
	return b.compare(ctx, n, []string{bench.CreateExecCold}, subjects...)
}

// startBurst makes every subject start a hundred at once, in turn, n times.
func startBurst(ctx context.Context, b *bed, n int) error {
	t, err := b.cold(ctx)
	if err != nil {
		return err
	}
	subjects := append([]bench.Subject{bench.StartCold(t)}, b.starters(ctx)...)
	names, series := []string{}, map[string]*bench.Series{}
	for _, s := range subjects {
		names, series[s.Name] = append(names, s.Name), &bench.Series{}
	}
	before := bench.Load()
	var failed error
	for range n {
		for _, s := range subjects {
			got, err := bench.Launch(ctx, atOnce, 0, func(ctx context.Context) (took float64, err error) {
				err = s.Once(ctx, func(measure string, value float64) {
					if measure == bench.CreateExecCold {
						took = value
					}
				})
				return took, err
			})
			series[s.Name].Join(got)
			if failed == nil {
				failed = err
			}
		}
	}
	b.results = append(b.results, bench.Compare(bench.Measure{Name: burstCold, Unit: "ms"}, names, series, before, bench.Load()))
	return failed
}

// The modes of ComputeSDK's method, against the server with its defaults.

func sequential(ctx context.Context, b *bed, n int) error {
	return b.interactive(ctx, "sequential_tti", func(once func(context.Context) (float64, error)) (*bench.Series, error) {
		all := &bench.Series{}
		var failed error
		for range n {
			one, err := bench.Launch(ctx, 1, 0, once)
			all.Join(one)
			if failed == nil {
				failed = err
			}
		}
		return all, failed
	})
}

func staggered(ctx context.Context, b *bed, n int) error {
	return b.interactive(ctx, "staggered_tti", func(once func(context.Context) (float64, error)) (*bench.Series, error) {
		return bench.Launch(ctx, n, between, once)
	})
}

func burst(ctx context.Context, b *bed, n int) error {
	return b.interactive(ctx, "burst_tti", func(once func(context.Context) (float64, error)) (*bench.Series, error) {
		return bench.Launch(ctx, n, 0, once)
	})
}

func (b *bed) interactive(ctx context.Context, name string, launch func(func(context.Context) (float64, error)) (*bench.Series, error)) error {
	t, err := b.warm(ctx)
	if err != nil {
		return err
	}
	before := bench.Load()
	s, err := launch(t.Interactive)
	s.Score = bench.Score(s)
	b.results = append(b.results, bench.Compare(bench.Measure{Name: name, Unit: "ms"}, []string{"bothy"},
		map[string]*bench.Series{"bothy": s}, before, bench.Load()))
	return err
}
