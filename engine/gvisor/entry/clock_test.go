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
	fd, err := memutil.CreateMemFD("clock", 0)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := pgalloc.NewMemoryFile(os.NewFile(uintptr(fd), "clock"), pgalloc.MemoryFileOpts{})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Destroy()
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
