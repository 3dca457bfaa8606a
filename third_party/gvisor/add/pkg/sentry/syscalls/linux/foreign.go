package linux

import (
	"runtime"
	"sync"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/tuning"
)

// foreign makes a table once, when it is first asked for.
func foreign(table func() *kernel.SyscallTable) func() *kernel.SyscallTable {
	return sync.OnceValue(table)
}

// registerForeign registers the table that is foreign to most, where it is not.
func registerForeign() {
	if runtime.GOARCH == "arm64" || !tuning.On("foreign-table") {
		kernel.RegisterSyscallTable(ARM64())
	}
}
