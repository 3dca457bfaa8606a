package systrap

import "runtime"

// processors is how many processors this process will have, where it began with fewer, and
// untilSpread returns when it has them.
var (
	processors  int
	untilSpread func()
)

// DelayFastPath keeps the fast paths off until wait returns, for a process that will then
// have n processors. It is called before the platform is made; wait is called when a program
// runs for the first time.
func DelayFastPath(n int, wait func()) { processors, untilSpread = n, wait }

// numCPU is runtime.NumCPU, which keeps the number that the process began with.
func numCPU() int { return max(runtime.NumCPU(), processors) }

// delay returns when the fast paths may be tried.
func (s *fastPathState) delay() {
	if untilSpread != nil {
		s.park()
		untilSpread()
	}
}
