package entry

import (
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
)

//go:generate go test -run TestFilterIsWhatTheLibraryCompiles -update .

// precompiledPrograms is where the library looks for its filter of the sentry's
// own system calls before it compiles one. As published it has none, and
// compiles it at every start, which is a fifth of the work of a start.
//
//go:linkname precompiledPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var precompiledPrograms map[string]precompiledseccomp.Program

// presetFilter gives the library the filter that it would compile for our
// configuration. A test compares the two. Where there is none, for another
// architecture or configuration, the library does as always.
func presetFilter() {
	filter.ListPrecompiled() // empties the table when it is called first
	if compiledFilter.Name != "" {
		precompiledPrograms[compiledFilter.Name] = compiledFilter
	}
}
