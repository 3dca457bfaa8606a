package systrap

import "runtime"

// processors is how many processors this process will have if it started with fewer, and
// untilSpread returns when it has them.
var (
	processors  int
	untilSpread func()
)

// DelayFastPath disables the fast paths until wait returns, for a process that then has n
// processors. It is called before the platform is created; wait is called when a program
// first runs.
func DelayFastPath(n int, wait func()) { processors, untilSpread = n, wait }

// numCPU corrects runtime.NumCPU, which remains the number that the process started with.
func numCPU() int { return max(runtime.NumCPU(), processors) }

// delay returns when the fast paths may be enabled.
func (s *fastPathState) delay() {
	if untilSpread != nil {
		s.park()
		untilSpread()
	}
}
