package systrap

import "gvisor.dev/gvisor/pkg/tuning"

// ExtraProcessors is how many of the processors that Go uses in this process are not the
// sandbox's.
var ExtraProcessors int

// minStubThreads lets a program's threads take turns without the sentry's help.
const minStubThreads = 2

// stubThreads is how many threads run a program's on the host, for so many processors that Go
// uses. More than the sandbox has would only take each other's place.
func stubThreads(processors int) int {
	if ExtraProcessors == 0 || !tuning.On("stub-threads") {
		return processors
	}
	return max(processors-ExtraProcessors, minStubThreads)
}
