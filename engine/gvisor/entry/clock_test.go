//go:build gvisorpatched

package entry

import (
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	sentrytime "gvisor.dev/gvisor/pkg/sentry/time"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

func TestClocksAreHastened(t *testing.T) {
	keeper := kernel.NewTimekeeper()
	if keeper.CalibrateIn(time.Second) {
		t.Error("a timekeeper without clocks can be calibrated")
	}
	memory := newMemoryFile(t)
	page, err := memory.Allocate(hostarch.PageSize, pgalloc.AllocOpts{Kind: usage.Anonymous})
	if err != nil {
		t.Fatal(err)
	}
	keeper.SetClocks(sentrytime.NewCalibratedClocks(false), kernel.NewVDSOParamPage(memory, page))
	defer keeper.Destroy()
	if !keeper.CalibrateIn(time.Second) {
		t.Error("a timekeeper with clocks cannot be calibrated")
	}
}
