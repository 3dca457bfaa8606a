//go:build gvisorpatched

package entry

import (
	"gvisor.dev/gvisor/pkg/cpuid"

	"github.com/bothy-dev/bothy/engine/gvisor/processor"
)

// knowProcessor does what cpuid.Initialize would, without executing CPUID.
func knowProcessor() { cpuid.InitializeWith(processor.Features()) }
