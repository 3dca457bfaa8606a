//go:build gvisorpatched

package entry

import (
	"reflect"
	"time"

	"gvisor.dev/gvisor/pkg/gomaxprocs"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/platform/systrap"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/runsc/boot/filter"
)

// Hooks exported by the patches in third_party/gvisor. hooks_plain.go has the substitutes
// for the upstream library.

// onAllocate has f called before the library gives memory out. Locks are held then.
func onAllocate(f func(*pgalloc.MemoryFile, uint64)) { pgalloc.OnAllocate = f }

const notifiesAllocations = true

// onSetProcessors makes the library call f instead of runtime.GOMAXPROCS. It returns the
// argument of the last such call.
func onSetProcessors(f func(n int) int) { gomaxprocs.OnSet = f }

// setExtraProcessors tells the library how many processors this process has for itself.
func setExtraProcessors(n int) { systrap.ExtraProcessors = n }

// onStaticFile lets f provide the content of static files.
func onStaticFile(f func(data string) string) { vfs.OnStaticFile = f }

// presetFilters gives the library filters for the sentry's own system calls.
func presetFilters(programs ...precompiledseccomp.Program) { filter.Preset(programs...) }

// savedTypes are the types that the library saves and loads.
func savedTypes() []reflect.Type { return state.Types() }

// skipTracePoints keeps the library from describing its trace points.
func skipTracePoints() { seccheck.SkipInitialize() }

// calibrateIn makes the kernel's clocks read the host's in d, if it has clocks.
func calibrateIn(t *kernel.Timekeeper, d time.Duration) bool { return t.CalibrateIn(d) }

// knowsAnonymousMemory says whether eachAnonymous visits anything.
const knowsAnonymousMemory = true

// eachAnonymous visits a process's anonymous memory, with its offset in f. The kernel is paused.
func eachAnonymous(m *mm.MemoryManager, f *pgalloc.MemoryFile, visit func(hostarch.AddrRange, uint64)) {
	m.AnonymousMemory(f, visit)
}
