package entry

import (
	"reflect"
	"sync"
	"time"
	"unsafe"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
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
		if timer := clockTimer(k.Timekeeper()); timer != nil {
			timer.Reset(clockAfter)
		}
	})
}

// clockTimer is what wakes the library to look at the clocks.
func clockTimer(t *kernel.Timekeeper) *time.Timer {
	f := finder{}
	field := f.field(reflect.TypeFor[kernel.Timekeeper](), "timer", reflect.TypeFor[*time.Timer]())
	if f.err != nil {
		log.Warningf("The time will be slow to read for a second: %v", f.err)
		return nil
	}
	return *(**time.Timer)(unsafe.Add(unsafe.Pointer(t), field.Offset))
}
