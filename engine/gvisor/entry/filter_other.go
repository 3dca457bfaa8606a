//go:build !amd64

package entry

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

var (
	compiledFilter      precompiledseccomp.Program
	compiledStubFilters []precompiledseccomp.Program
)
