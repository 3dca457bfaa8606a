package entry

import (
	"reflect"
	"runtime"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/state"

	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
)

// While it waits, a prespawned sentry does what its sandbox would otherwise wait for: it makes
// processes in which programs can run, allocates memory so that the host need not find and clear
// it, and finds out how the library's types load a checkpoint.

const (
	// waitsAfter is how long after its start a sentry counts as a waiting spare.
	waitsAfter = 500 * time.Millisecond
	// warmProcesses are for process 1, an interpreter that it keeps, and the first
	// command.
	warmProcesses = 3
	// warmBytes is the memory needed to load the kernel of a small sandbox.
	warmBytes = 12 << 20
	warmPiece = 32 << 10
)

// begun is set once the sentry has been told what to do.
var begun atomic.Bool

// warmLater warms the sentry up if it has to wait.
func warmLater(p platform.Platform) {
	if !tuning.On(tuning.Warm) {
		return
	}
	time.AfterFunc(waitsAfter, func() {
		if begun.Load() {
			return
		}
		warmTypes()
		warmMemory()
		if err := makeProcesses(p, warmProcesses); err != nil {
			log.Warningf("cannot make processes ahead: %v", err)
		}
	})
}

// makeProcesses creates some, unless it is too late, and releases them together: the platform
// keeps them for reuse.
func makeProcesses(p platform.Platform, n int) error {
	for range n {
		if begun.Load() {
			return nil
		}
		a, err := p.NewAddressSpace()
		if err != nil {
			return err
		}
		defer a.Release()
	}
	return nil
}

// warmMemory allocates memory from the host and frees it again for this process's
// own use.
func warmMemory() {
	pieces := make([][]byte, 0, warmBytes/warmPiece)
	for range cap(pieces) {
		piece := make([]byte, warmPiece)
		for at := 0; at < len(piece); at += 4 << 10 {
			piece[at] = 1
		}
		pieces = append(pieces, piece)
	}
	runtime.KeepAlive(pieces)
	runtime.GC()
}

// warmTypes makes the runtime find the methods that load each type, which it then caches.
func warmTypes() (found int) {
	for _, t := range savedTypes() {
		if _, ok := reflect.Zero(reflect.PointerTo(t)).Interface().(state.SaverLoader); ok {
			found++
		}
	}
	return found
}
