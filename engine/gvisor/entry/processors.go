package entry

import (
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessorsEnv is the variable that tells a sentry how many processors the host has. It may be
// started on one of them, and get the others later.
const ProcessorsEnv = "BOTHY_PROCESSORS"

// lookSpread is how often a sentry checks whether it has more than one processor.
const lookSpread = 20 * time.Millisecond

// delayFastPath makes the library busy-wait for system calls as soon as there is more than one
// processor. With only one, the waiting thread would take it from the thread that it waits for.
func delayFastPath() {
	n, _ := strconv.Atoi(os.Getenv(ProcessorsEnv))
	if n <= runtime.NumCPU() {
		return
	}
	delayFastPathUntil(n, func() {
		var have unix.CPUSet
		for unix.SchedGetaffinity(0, &have) == nil && have.Count() == 1 {
			time.Sleep(lookSpread)
		}
	})
}

// moreProcessors is how many processors this process has in addition to the sandbox's.
const moreProcessors = 2

// fixProcessors sets GOMAXPROCS permanently to somewhat more than the processors that the
// sandbox sees. With a single one, a goroutine that busy-waits for a program's next system call
// would keep all others waiting, for up to 10 ms each time. The library itself adds one for each
// thread that reads memory from a checkpoint, which leaves the kernel too few meanwhile.
func fixProcessors() {
	setExtraProcessors(moreProcessors)
	told := 0
	onSetProcessors(func(n int) int {
		if told == 0 {
			runtime.GOMAXPROCS(n + moreProcessors)
		}
		before := told
		told = n
		return before
	})
}
