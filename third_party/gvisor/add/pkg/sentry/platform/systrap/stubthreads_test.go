package systrap

import "testing"

func TestStubThreads(t *testing.T) {
	t.Cleanup(func() { ExtraProcessors = 0 })
	for _, c := range []struct{ extra, processors, want int }{{0, 1, 1}, {0, 4, 4}, {2, 3, 2}, {2, 4, 2}, {2, 6, 4}} {
		ExtraProcessors = c.extra
		if got := stubThreads(c.processors); got != c.want {
			t.Errorf("%d of %d processors for itself make %d threads, not %d", c.extra, c.processors, got, c.want)
		}
	}
}
