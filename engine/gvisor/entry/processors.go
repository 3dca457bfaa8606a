package entry

import (
	"runtime"
	"time"
	_ "unsafe" // for go:linkname
)

// libraryProcessors is how many processors the library gives this process, as many
// as the sandbox sees. It is 0 until it has done so. While it is 0 the library keeps
// count of those that it wants for a time, but gives none.
//
//go:linkname libraryProcessors gvisor.dev/gvisor/pkg/gomaxprocs.base
var libraryProcessors int

// moreProcessors is how many this process has beside those of the sandbox.
const moreProcessors = 2

// fixProcessors gives this process some more processors, for good. Who waits for a
// program to make its next system call looks for it in a loop, and with a single
// processor would keep everybody else waiting, for up to 10 ms each time. The library
// itself adds one for each thread that reads memory from a checkpoint, which leave the
// kernel too little to go on meanwhile.
func fixProcessors() {
	go func() {
		for libraryProcessors == 0 {
			time.Sleep(time.Millisecond)
		}
		n := libraryProcessors
		libraryProcessors = 0
		runtime.GOMAXPROCS(n + moreProcessors)
	}()
}
