package entry

import (
	"slices"
	"strconv"

	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
)

//go:generate go test -modfile=../../../bin/go.mod -tags=gvisorpatched -run IsWhatTheLibraryCompiles -update .

// presetFilter gives the library a precompiled filter for the sentry's own system calls, which
// it would otherwise compile at every start: a fifth of the work of one. A test compares the
// two. If there is none for an architecture or configuration, the library compiles it as usual.
func presetFilter() { presetFilters(compiledFilters...) }

// presetStubFilters gives the library precompiled filters for the processes in which a sandbox's
// programs run. They contain addresses that almost never differ from the sentry's. A test
// compares them with what the library would compile.
func presetStubFilters() {
	onStubFilter(renderStubFilter)
}

func renderStubFilter(name string, _ *seccomp.Program, addresses []uintptr) ([]bpf.Instruction, error) {
	for _, f := range compiledStubFilters {
		if f.Name == name {
			f.Bytecode32 = slices.Clone(f.Bytecode32) // it is rendered in place, and processes are made concurrently
			return f.RenderInstructions(addressValues(addresses))
		}
	}
	return nil, nil
}

func addressValues(addresses []uintptr) precompiledseccomp.Values {
	v := precompiledseccomp.Values{}
	for i, a := range addresses {
		v.SetUint64(addressName(i), uint64(a))
	}
	return v
}

func addressName(i int) string { return "address" + strconv.Itoa(i) }
