//go:build !gvisorpatched

package entry

import (
	"reflect"
	"time"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
)

// The published library has no hooks, and does what hooks_patched.go would avoid.

func onAllocate(func(*pgalloc.MemoryFile, uint64)) {}

const notifiesAllocations = false

func onSetProcessors(func(n int) int) {}

func setExtraProcessors(int) {}

func onStaticFile(func(data string) string) {}

func presetFilters(...precompiledseccomp.Program) {}

func savedTypes() []reflect.Type { return nil }

func skipTracePoints() {}

func calibrateIn(*kernel.Timekeeper, time.Duration) bool { return true }

const knowsAnonymousMemory = false

func eachAnonymous(*mm.MemoryManager, *pgalloc.MemoryFile, func(hostarch.AddrRange, uint64)) {}
