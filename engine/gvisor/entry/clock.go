package entry

import (
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/kernel"

	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
)

// clockAfter is when the library reads the host's clocks for the second time. From then on
// programs read the time without a system call. By default that is after a second, but a Go
// program reads the time more than a hundred times while it starts. The reading takes less than
// a microsecond, so the clocks' rate is right to some ten parts per million until the next one
// corrects it.
const clockAfter = 5 * time.Millisecond

var clockOnce sync.Once

// calibrateClocks calibrates the kernel's clocks early. The first task already runs.
func calibrateClocks(k *kernel.Kernel) {
	clockOnce.Do(func() {
		if !tuning.On(tuning.Clock) {
			return
		}
		if !calibrateIn(k.Timekeeper(), clockAfter) {
			log.Warningf("The kernel has no clocks: the time will be slow to read for a second")
		}
	})
}
