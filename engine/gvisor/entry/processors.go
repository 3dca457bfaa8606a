package entry

import "runtime"

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
