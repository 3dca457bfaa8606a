package entry

import "runtime"

// moreProcessors is how many this process has beside those of the sandbox.
const moreProcessors = 2

// fixProcessors gives this process some more processors than the sandbox sees, for
// good. Who waits for a program to make its next system call looks for it in a loop,
// and with a single processor would keep everybody else waiting, for up to 10 ms each
// time. The library itself adds one for each thread that reads memory from a
// checkpoint, which leave the kernel too little to go on meanwhile.
func fixProcessors() {
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
