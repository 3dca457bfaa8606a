package entry

import (
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// minSleep is how long process 1 sleeps at least. While anything runs, its runtime has a
// thread that checks every 20 µs for goroutines blocked in system calls, and each check takes
// two context switches.
const minSleep = 4 * time.Millisecond

// minNanosleep makes no sleep of process 1 shorter than minSleep.
func minNanosleep(nanosleep kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if !isProcessOne(t) {
			return nanosleep(t, number, args)
		}
		var asked linux.Timespec
		if _, err := asked.CopyIn(t, args[0].Pointer()); err != nil || !asked.Valid() || asked.ToDuration() >= minSleep {
			return nanosleep(t, number, args)
		}
		if _, err := t.BlockWithTimeout(nil, true, minSleep); !linuxerr.Equals(linuxerr.ETIMEDOUT, err) {
			return 0, nil, linuxerr.ConvertIntr(err, linuxerr.EINTR)
		}
		return 0, nil, nil
	}
}
