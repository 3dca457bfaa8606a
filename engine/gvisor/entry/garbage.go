package entry

import (
	"runtime/debug"
	"time"
)

const (
	// hurryBytes is how much memory this process may take while garbage lies.
	hurryBytes = 64 << 20
	// calmAfter is how long the first commands are spared the work of taking it
	// away, and waitsAfter after how long a sentry counts as one that waits.
	calmAfter  = 2 * time.Second
	waitsAfter = time.Second
	// calmPercent is the garbage that is let lie for good, in percent of what is
	// in use.
	calmPercent = 100
)

// hurry lets garbage lie: to collect it takes a fifth of the work of a start.
func hurry() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(hurryBytes)
	time.AfterFunc(waitsAfter, func() {
		if !gate.isOpen.Load() {
			debug.FreeOSMemory()
		}
	})
}

// calmDown ends that once the sandbox is in use.
func calmDown() {
	time.AfterFunc(calmAfter, func() {
		debug.SetMemoryLimit(1 << 62)
		debug.SetGCPercent(calmPercent)
		debug.FreeOSMemory()
	})
}
