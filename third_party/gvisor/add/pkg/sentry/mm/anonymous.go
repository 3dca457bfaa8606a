package mm

import (
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// AnonymousMemory visits, in order, the private anonymous memory that is backed by file, with
// its range in file. The kernel must be paused.
func (mm *MemoryManager) AnonymousMemory(file memmap.File, visit func(ar hostarch.AddrRange, off uint64)) {
	vseg := mm.vmas.FirstSegment()
	for pseg := mm.pmas.FirstSegment(); pseg.Ok(); pseg = pseg.NextSegment() {
		ar, pma := pseg.Range(), pseg.ValuePtr()
		for vseg.Ok() && (vseg.End() <= ar.Start || vseg.ValuePtr().mappable != nil) {
			vseg = vseg.NextSegment()
		}
		if vseg.Ok() && pma.private && pma.file == file && vseg.Range().IsSupersetOf(ar) {
			visit(ar, pma.off)
		}
	}
}
