package entry

import (
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
)

const (
	// deferredGCBytes is how much memory this process may take while garbage
	// collection is deferred.
	deferredGCBytes = 64 << 20
	// calmAfter is how long garbage collection stays deferred, so that the first commands need
	// not wait for it.
	calmAfter = 2 * time.Second
	// calmPercent is the usual GOGC setting: garbage in percent of live memory.
	calmPercent = 100
)

// deferGC defers garbage collection, which is a fifth of the work of a start.
func deferGC() {
	if !tuning.On(tuning.Garbage) {
		return
	}
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(deferredGCBytes)
}

// resumeGC ends the deferral once the sandbox is in use.
func resumeGC() {
	if !tuning.On(tuning.Garbage) {
		return
	}
	time.AfterFunc(calmAfter, func() {
		debug.SetMemoryLimit(1 << 62)
		debug.SetGCPercent(calmPercent)
		debug.FreeOSMemory()
	})
}

// deferGCFor defers garbage collection for a moment while the sandbox waits, as long as that does
// not take much more memory than is already in use.
func deferGCFor(d time.Duration) {
	if !gate.isOpen.Load() || !tuning.On(tuning.Garbage) {
		return // it is deferred already, or never
	}
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryOfRuntime() + deferredGCBytes/2)
	time.AfterFunc(d, func() {
		debug.SetMemoryLimit(1 << 62)
		debug.SetGCPercent(calmPercent)
		debug.FreeOSMemory()
	})
}

// memoryOfRuntime is how much of the host's memory this process's own runtime holds.
func memoryOfRuntime() int64 {
	held := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(held)
	return int64(held[0].Value.Uint64() - held[1].Value.Uint64())
}
