package entry

import (
	"sync"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/cpuid"
)

// The library asks the processor for each of its features anew, some 300 times. In a
// virtual machine each question goes to the host of that, which makes it a fiftieth of
// the work of a start. So it is asked once for each answer there is.

//go:linkname cpuOnce gvisor.dev/gvisor/pkg/cpuid.initOnce
var cpuOnce sync.Once

//go:linkname cpuFeatures gvisor.dev/gvisor/pkg/cpuid.hostFeatureSet
var cpuFeatures cpuid.FeatureSet

//go:linkname readMaxCPUFreq gvisor.dev/gvisor/pkg/cpuid.readMaxCPUFreq
func readMaxCPUFreq()

//go:linkname initHWCap gvisor.dev/gvisor/pkg/cpuid.initHWCap
func initHWCap()

// askProcessor does what cpuid.Initialize would.
func askProcessor() {
	cpuOnce.Do(func() {
		cpuFeatures = processor()
		readMaxCPUFreq()
		initHWCap()
	})
}

func processor() cpuid.FeatureSet {
	return cpuid.FeatureSet{Function: answers{}}.Fixed()
}

// answers remembers what the processor has said.
type answers map[cpuid.In]cpuid.Out

// Query implements cpuid.Function.
func (a answers) Query(in cpuid.In) cpuid.Out {
	out, ok := a[in]
	if !ok {
		out = (*cpuid.Native)(nil).Query(in)
		a[in] = out
	}
	return out
}
