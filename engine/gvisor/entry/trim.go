package entry

import (
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/usage"
	"gvisor.dev/gvisor/pkg/state"

	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
)

// The library allocates program memory in blocks of 2 MB, of which often little is
// touched. When writing a checkpoint it reads every allocated page, and the host has
// to allocate and clear a page for each that was never touched; this is half of the
// time for which a small sandbox is stopped. So these pages are released before, as
// with madvise(MADV_DONTNEED): a program that touches them later gets zeros, which
// is their content.

// trimmer is mapped into process 1, because the library calls mapped objects to prepare for a
// checkpoint. This is the only hook at that moment: all tasks are stopped, and no page has been
// read. It is the same for every sandbox, and is saved with it.
type trimmer struct {
	// Objects without a size have no identity, by which the library saves them.
	_ uint64
}

var (
	_ memmap.Mappable        = (*trimmer)(nil)
	_ memmap.MappingIdentity = (*trimmer)(nil)
)

func init() { state.Register((*trimmer)(nil)) }

// InvalidateUnsavable releases untouched pages.
func (*trimmer) InvalidateUnsavable(ctx context.Context) error {
	deferGCFor(checkpointTime)
	kmem.spare()
	trim(kernel.KernelFromContext(ctx))
	for _, later := range []time.Duration{time.Second, 4 * time.Second, 16 * time.Second} {
		time.AfterFunc(later, giveBack)
	}
	return nil
}

// checkpointTime is how long it takes to write a small checkpoint. Garbage collection was a fifth
// of that.
const checkpointTime = time.Second

// worthGivingBack is how much unused memory may be kept after a checkpoint, in bytes.
const worthGivingBack = 64 << 20

// giveBack returns memory used for writing a checkpoint to the host.
func giveBack() {
	unused := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(unused)
	free, live, objects := unused[0].Value.Uint64(), unused[1].Value.Uint64(), unused[2].Value.Uint64()
	if free+objects > live+worthGivingBack {
		debug.FreeOSMemory()
	}
}

// The mapping itself gives no access to anything.

func (*trimmer) AddMapping(context.Context, memmap.MappingSpace, hostarch.AddrRange, uint64, bool) error {
	return nil
}
func (*trimmer) RemoveMapping(context.Context, memmap.MappingSpace, hostarch.AddrRange, uint64, bool) {
}
func (*trimmer) CopyMapping(context.Context, memmap.MappingSpace, hostarch.AddrRange, hostarch.AddrRange, uint64, bool) error {
	return nil
}
func (*trimmer) Translate(context.Context, memmap.MappableRange, memmap.MappableRange, hostarch.AccessType) ([]memmap.Translation, error) {
	return nil, linuxerr.EFAULT
}
func (*trimmer) IncRef()                                           {}
func (*trimmer) DecRef(context.Context)                            {}
func (*trimmer) MappedName(context.Context) string                 { return "[trimmer]" }
func (*trimmer) DeviceID() uint64                                  { return 0 }
func (*trimmer) InodeID() uint64                                   { return 0 }
func (*trimmer) Msync(context.Context, memmap.MappableRange) error { return nil }
func (*trimmer) StateTypeName() string                             { return "bothy/entry.trimmer" }
func (*trimmer) StateFields() []string                             { return nil }
func (*trimmer) StateSave(state.Sink)                              {}
func (*trimmer) StateLoad(context.Context, state.Source)           { fitted.Store(true); kmem.spare() }

// fitted is true once process 1 has the trimmer, either mapped here or restored from a
// checkpoint.
var fitted atomic.Bool

// fitTrimmer maps the trimmer into the memory of a task, unless it is mapped
// already.
func fitTrimmer(t *kernel.Task) {
	if !knowsAnonymousMemory || fitted.Load() {
		return
	}
	one := new(trimmer)
	_, err := t.MemoryManager().MMap(t, memmap.MMapOpts{Length: hostarch.PageSize, Mappable: one, MappingIdentity: one, Private: true})
	if err != nil {
		log.Warningf("Untouched memory will be saved: %v", err)
	}
	fitted.Store(err == nil)
}

// smallestHole is the minimum number of contiguous untouched bytes. Releasing fewer costs more
// than reading one or two pages.
const smallestHole = 16 * hostarch.PageSize

// trim releases what no process has touched. The kernel is paused.
func trim(k *kernel.Kernel) {
	if !tuning.On(tuning.Trim) {
		return
	}
	mf := k.MemoryFile()
	// Memory still to be read after a restore looks untouched.
	if err := mf.AwaitLoadAll(); err != nil {
		return
	}
	given := map[*mm.MemoryManager][]extent{}
	sum := uint64(0)
	for _, t := range k.TaskSet().Root.Tasks() {
		t.WithMuLocked(func(t *kernel.Task) {
			m := t.MemoryManager()
			if _, known := given[m]; m == nil || known {
				return
			}
			given[m] = anonymousMemory(m, mf)
			for _, e := range given[m] {
				sum += uint64(e.Length())
			}
		})
	}
	// Searching for holes takes at least as long as reading a sixteenth of the memory.
	if sum >= worthCounting {
		_ = mf.UpdateUsage(nil)
		if stats, _ := usage.MemoryAccounting.Copy(); stats.Anonymous >= sum-sum/16 {
			return
		}
	}
	for m, extents := range given {
		trimProcess(m, mf.FD(), extents)
	}
	// From here on it is known what was touched, and need not be checked page by page.
	_ = mf.UpdateUsage(nil)
}

// worthCounting is the amount of memory in bytes from which it pays off to ask first how much of
// it was touched.
const worthCounting = 128 << 20

// extent is a range of a process's memory, and its place in the file with all memory.
type extent struct {
	hostarch.AddrRange
	off uint64
}

// anonymousMemory lists a process's anonymous memory: only that is zero if it was never touched.
func anonymousMemory(m *mm.MemoryManager, mf *pgalloc.MemoryFile) (extents []extent) {
	eachAnonymous(m, mf, func(ar hostarch.AddrRange, off uint64) { extents = append(extents, extent{ar, off}) })
	return extents
}

func trimProcess(m *mm.MemoryManager, fd int, extents []extent) {
	var holes []hostarch.AddrRange
	for _, e := range extents {
		eachHole(fd, e.off, e.off+uint64(e.Length()), func(from, to uint64) {
			holes = append(holes, hostarch.AddrRange{Start: e.Start + hostarch.Addr(from-e.off), End: e.Start + hostarch.Addr(to-e.off)})
		})
	}
	for _, h := range holes {
		_ = m.Decommit(h.Start, uint64(h.Length())) // locked memory stays
	}
}

// eachHole visits the holes of a memory file that are large enough.
func eachHole(fd int, from, end uint64, tell func(from, to uint64)) {
	for from < end {
		hole, err := unix.Seek(fd, int64(from), unix.SEEK_HOLE)
		if err != nil || uint64(hole) >= end {
			return
		}
		data, err := unix.Seek(fd, hole, unix.SEEK_DATA)
		switch {
		case err == unix.ENXIO: // there is none after this
			data = int64(end)
		case err != nil:
			return
		}
		from = min(uint64(data), end)
		if from-uint64(hole) >= smallestHole {
			tell(uint64(hole), from)
		}
	}
}
