package entry

import (
	"strconv"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	_ "gvisor.dev/gvisor/pkg/sentry/platform/systrap"
	"gvisor.dev/gvisor/runsc/boot/filter"
)

//go:generate go test -modfile=../../../bin/go.mod -run IsWhatTheLibraryCompiles -update .

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
	for _, f := range compiledFilters {
		precompiledPrograms[f.Name] = f
	}
}

// onCompile is asked, where the library is the changed one, before it compiles a
// filter of the processes in which a sandbox's programs run. These hold addresses
// that are another sentry's by chance only.
//
//go:linkname onCompile gvisor.dev/gvisor/pkg/sentry/platform/systrap.onCompile
var onCompile func(name string, p *seccomp.Program, addresses []uintptr) ([]bpf.Instruction, error)

// presetStubFilters gives the library these filters. A test compares them with
// what it would compile.
func presetStubFilters() {
	onCompile = func(name string, _ *seccomp.Program, addresses []uintptr) ([]bpf.Instruction, error) {
		for _, f := range compiledStubFilters {
			if f.Name == name {
				return f.RenderInstructions(addressValues(addresses))
			}
		}
		return nil, nil
	}
}

func addressValues(addresses []uintptr) precompiledseccomp.Values {
	v := precompiledseccomp.Values{}
	for i, a := range addresses {
		v.SetUint64(addressName(i), uint64(a))
	}
	return v
}

func addressName(i int) string { return "address" + strconv.Itoa(i) }
