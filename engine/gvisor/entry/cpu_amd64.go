//go:build gvisorpatched

package entry

import (
	"gvisor.dev/gvisor/pkg/cpuid"

	"github.com/bothy-dev/bothy/engine/gvisor/processor"
)

// initProcessor does what cpuid.Initialize would, without executing CPUID.
func initProcessor() { cpuid.InitializeWith(processor.Features()) }
