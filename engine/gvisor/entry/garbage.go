package entry

import (
	"math"
	"runtime"
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
	deferUntil(deferredGCBytes)
}

// deferUntil defers garbage collection until this process has so much memory. From then on it is
// collected as usual: at a limit that cannot be kept, it would be collected all the time.
func deferUntil(bytes int64) {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(bytes)
	runtime.AddCleanup(new([64]byte), func(struct{}) { collectAsUsual() }, struct{}{})
}

// collectAsUsual ends a deferral.
func collectAsUsual() {
	debug.SetMemoryLimit(math.MaxInt64)
	debug.SetGCPercent(calmPercent)
}

// resumeGC ends the deferral once the sandbox is in use.
func resumeGC() {
	if !tuning.On(tuning.Garbage) {
		return
	}
	time.AfterFunc(calmAfter, func() {
		collectAsUsual()
		debug.FreeOSMemory()
	})
}

// deferGCFor defers garbage collection for a moment while the sandbox waits, as long as that does
// not take much more memory than is already in use.
func deferGCFor(d time.Duration) {
	if !gate.isOpen.Load() || !tuning.On(tuning.Garbage) {
		return // it is deferred already, or never
	}
	deferUntil(memoryOfRuntime() + deferredGCBytes/2)
	time.AfterFunc(d, func() {
		collectAsUsual()
		debug.FreeOSMemory()
	})
}

// memoryOfRuntime is how much of the host's memory this process's own runtime holds.
func memoryOfRuntime() int64 {
	held := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(held)
	return int64(held[0].Value.Uint64() - held[1].Value.Uint64())
}
