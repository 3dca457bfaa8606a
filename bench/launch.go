package bench

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Launch starts n times, each time at a fixed interval, whether or not the one before has ended,
// and records what every once returns. It waits for all. The error is the first failure;
// failures are counted in the series.
func Launch(ctx context.Context, n int, gap time.Duration, once func(context.Context) (float64, error)) (*Series, error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	var first error
	s := &Series{}
	for i := range n {
		if i > 0 && gap > 0 {
			select {
			case <-time.After(gap):
			case <-ctx.Done():
			}
		}
		all.Go(func() {
			value, err := once(ctx)
			mu.Lock()
			defer mu.Unlock()
			s.add(value, true, err)
			if first == nil {
				first = err
			}
		})
	}
	all.Wait()
	return s, first
}

// Join adds the samples of another series.
func (s *Series) Join(o *Series) {
	s.N, s.OK, s.Samples = s.N+o.N, s.OK+o.OK, append(s.Samples, o.Samples...)
}

// The score of ComputeSDK's public method consists of three numbers, each worth 100 at 0 and
// nothing at the ceiling, in milliseconds.
const (
	scoreCeiling = 10_000
	medianWeight = 0.60
	p95Weight    = 0.25
	p99Weight    = 0.15
	// scoreTrim is the fraction of the times that is left out at each end.
	scoreTrim = 0.05
)

// Score is that score, from 0 to 100: the weighted value of the median, the 95th and the 99th
// percentile of the times that succeeded, without the first and the last twentieth of them,
// times the fraction that succeeded.
func Score(s *Series) float64 {
	if s.OK == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s.Samples))
	trim := int(float64(len(sorted)) * scoreTrim)
	sorted = sorted[trim : len(sorted)-trim]
	worth := func(p float64) float64 { return 100 * max(0, 1-Percentile(sorted, p)/scoreCeiling) }
	timing := medianWeight*worth(50) + p95Weight*worth(95) + p99Weight*worth(99)
	return timing * float64(s.OK) / float64(s.N)
}
