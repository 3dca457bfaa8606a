package kernel

import (
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/memutil"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	sentrytime "gvisor.dev/gvisor/pkg/sentry/time"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

// lookedAt counts how often clocks look at the host's.
type lookedAt struct{ times atomic.Int32 }

func (l *lookedAt) Update(bool) sentrytime.UpdateResult {
	l.times.Add(1)
	return sentrytime.UpdateResult{}
}
func (*lookedAt) GetTime(sentrytime.ClockID) (int64, error) { return time.Now().UnixNano(), nil }
func (*lookedAt) MonotonicRawEnabled() bool                 { return false }

// vdsoPage makes a page of parameters for programs that read the time.
func vdsoPage(t *testing.T) *VDSOParamPage {
	t.Helper()
	fd, err := memutil.CreateMemFD("clocks", 0)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := pgalloc.NewMemoryFile(os.NewFile(uintptr(fd), "clocks"), pgalloc.MemoryFileOpts{DisableMemoryAccounting: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(memory.Destroy)
	page, err := memory.Allocate(hostarch.PageSize, pgalloc.AllocOpts{Kind: usage.Anonymous})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.DecRef(page) })
	return NewVDSOParamPage(memory, page)
}

// Clocks look at the host's when they are told to, and not when they would by themselves.
func TestCalibrateIn(t *testing.T) {
	params := vdsoPage(t)
	synctest.Test(t, func(t *testing.T) {
		keeper, clocks := NewTimekeeper(), &lookedAt{}
		if keeper.CalibrateIn(time.Millisecond) {
			t.Error("a timekeeper without clocks can be calibrated")
		}
		keeper.SetClocks(clocks, params)
		defer keeper.Destroy()
		before := clocks.times.Load()
		if !keeper.CalibrateIn(sentrytime.ApproxUpdateInterval / 100) {
			t.Error("a timekeeper with clocks cannot be calibrated")
		}
		time.Sleep(sentrytime.ApproxUpdateInterval / 50)
		synctest.Wait()
		if got := clocks.times.Load() - before; got != 1 {
			t.Errorf("the clocks were looked at %d times, not once", got)
		}
	})
}
