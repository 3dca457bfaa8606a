package mm

import (
	"bytes"
	"fmt"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
)

// ReadSmapsRollupInto is called by fsimpl/proc.smapsRollupData.Generate to implement
// /proc/[pid]/smaps_rollup. It counts as ReadSmapsDataInto.
func (mm *MemoryManager) ReadSmapsRollupInto(_ context.Context, buf *bytes.Buffer) {
	mm.mappingMu.RLock()
	defer mm.mappingMu.RUnlock()
	mm.activeMu.RLock()
	defer mm.activeMu.RUnlock()
	var start, end hostarch.Addr
	var rss, anon, dirty uint64
	for pseg := mm.pmas.FirstSegment(); pseg.Ok(); pseg = pseg.NextSegment() {
		size := uint64(pseg.Range().Length())
		rss += size
		if pseg.ValuePtr().private {
			anon += size
		}
	}
	if vseg := mm.vmas.FirstSegment(); vseg.Ok() {
		start, end = vseg.Start(), mm.vmas.LastSegment().End()
	}
	for vseg := mm.vmas.FirstSegment(); vseg.Ok(); vseg = vseg.NextSegment() {
		if !vseg.ValuePtr().effectivePerms.Write {
			continue
		}
		for pseg := mm.pmas.LowerBoundSegment(vseg.Start()); pseg.Ok() && pseg.Start() < vseg.End(); pseg = pseg.NextSegment() {
			dirty += uint64(pseg.Range().Intersect(vseg.Range()).Length())
		}
	}
	fmt.Fprintf(buf, "%08x-%08x ---p 00000000 00:00 0                                  [rollup]\n", start, end)
	for _, v := range []struct {
		name  string
		bytes uint64
	}{
		{"Rss", rss}, {"Pss", rss}, {"Pss_Anon", anon}, {"Pss_File", rss - anon}, {"Pss_Shmem", 0},
		{"Shared_Clean", 0}, {"Shared_Dirty", 0}, {"Private_Clean", rss - dirty}, {"Private_Dirty", dirty},
		{"Referenced", rss}, {"Anonymous", anon}, {"AnonHugePages", 0}, {"Swap", 0}, {"SwapPss", 0},
	} {
		fmt.Fprintf(buf, "%-15s %8d kB\n", v.name+":", v.bytes/1024)
	}
}
