package entry

import (
	"os"
	"testing"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/memutil"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	sentrytime "gvisor.dev/gvisor/pkg/sentry/time"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

func TestClockTimerIsFound(t *testing.T) {
	keeper := kernel.NewTimekeeper()
	if clockTimer(keeper) != nil {
		t.Error("a timekeeper without clocks has a timer")
	}
	memory := newMemoryFile(t)
	page, err := memory.Allocate(hostarch.PageSize, pgalloc.AllocOpts{Kind: usage.Anonymous})
	if err != nil {
		t.Fatal(err)
	}
	keeper.SetClocks(sentrytime.NewCalibratedClocks(false), kernel.NewVDSOParamPage(memory, page))
	defer keeper.Destroy()
	if clockTimer(keeper) == nil {
		t.Error("a timekeeper with clocks has no timer")
	}
}

// newMemoryFile makes one as a sentry has, which ends with the test.
func newMemoryFile(t *testing.T) *pgalloc.MemoryFile {
	t.Helper()
	fd, err := memutil.CreateMemFD("memory", 0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := pgalloc.NewMemoryFile(os.NewFile(uintptr(fd), "memory"), pgalloc.MemoryFileOpts{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Destroy)
	return f
}
