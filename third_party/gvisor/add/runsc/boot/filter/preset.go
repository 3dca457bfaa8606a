package filter

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

// Preset registers filters of the sentry that were compiled ahead.
func Preset(programs ...precompiledseccomp.Program) {
	registerPrecompiledProgramsOnce.Do(registerPrograms)
	for _, p := range programs {
		precompiledPrograms[p.Name] = p
	}
}
