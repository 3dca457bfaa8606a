package systrap

import "gvisor.dev/gvisor/pkg/tuning"

// ExtraProcessors is how many of the processors that Go uses in this process are not for the
// sandbox.
var ExtraProcessors int

// minStubThreads lets a program's threads alternate without the sentry.
const minStubThreads = 2

// stubThreads returns how many host threads run a program's threads, given the number of
// processors that Go uses. More than the sandbox has would only compete.
func stubThreads(processors int) int {
	if ExtraProcessors == 0 || !tuning.On("stub-threads") {
		return processors
	}
	return max(processors-ExtraProcessors, minStubThreads)
}
