package entry

import (
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/kernel"

	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
)

// clockAfter is when the library looks at the host's clocks for the second time. From
// then on programs read the time without a system call. By itself it looks again after
// a second, while a Go program reads the time more than a hundred times to start. It
// looks for less than a microsecond, so the clocks' rate is right to some ten parts in
// a million until they are set right by the next look.
const clockAfter = 5 * time.Millisecond

var clockOnce sync.Once

// hastenClocks makes the kernel's clocks ready. The first task runs already.
func hastenClocks(k *kernel.Kernel) {
	clockOnce.Do(func() {
		if !tuning.On(tuning.Clock) {
			return
		}
		if !calibrateIn(k.Timekeeper(), clockAfter) {
			log.Warningf("The kernel has no clocks: the time will be slow to read for a second")
		}
	})
}
