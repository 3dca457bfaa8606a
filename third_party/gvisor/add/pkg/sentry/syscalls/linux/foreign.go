package linux

import (
	"runtime"
	"sync"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/tuning"
)

// foreign creates a table once, when it is first used.
func foreign(table func() *kernel.SyscallTable) func() *kernel.SyscallTable {
	return sync.OnceValue(table)
}

// registerForeign registers the table of ARM64 programs, which hosts of other architectures need not have.
func registerForeign() {
	if runtime.GOARCH == "arm64" || !tuning.On("foreign-table") {
		kernel.RegisterSyscallTable(ARM64())
	}
}
