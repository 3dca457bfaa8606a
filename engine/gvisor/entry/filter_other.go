//go:build !amd64

package entry

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

var compiledFilters []precompiledseccomp.Program
