package entry

import (
	"sync"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/cpuid"

	"github.com/bothy-dev/bothy/engine/gvisor/processor"
)

//go:linkname cpuOnce gvisor.dev/gvisor/pkg/cpuid.initOnce
var cpuOnce sync.Once

//go:linkname cpuFeatures gvisor.dev/gvisor/pkg/cpuid.hostFeatureSet
var cpuFeatures cpuid.FeatureSet

//go:linkname readMaxCPUFreq gvisor.dev/gvisor/pkg/cpuid.readMaxCPUFreq
func readMaxCPUFreq()

//go:linkname initHWCap gvisor.dev/gvisor/pkg/cpuid.initHWCap
func initHWCap()

// knowProcessor does what cpuid.Initialize would, without asking the processor.
func knowProcessor() {
	cpuOnce.Do(func() {
		cpuFeatures = processor.Features()
		readMaxCPUFreq()
		initHWCap()
	})
}
