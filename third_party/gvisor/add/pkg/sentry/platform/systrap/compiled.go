package systrap

import (
	"errors"

	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp"
)

// OnCompile returns a filter that was compiled ahead, without its addresses. If it is unset
// or returns none, the filter is compiled.
var OnCompile func(name string, p *seccomp.Program, addresses []uintptr) ([]bpf.Instruction, error)

// The names that OnCompile is called with.
const (
	StubFilter   = "stub"
	ThreadFilter = "thread"
)

func compile(name string, p *seccomp.Program, addresses ...uintptr) ([]bpf.Instruction, seccomp.BuildStats, error) {
	if OnCompile != nil {
		if f, err := OnCompile(name, p, addresses); f != nil || err != nil {
			return f, seccomp.BuildStats{}, err
		}
	}
	return p.Build()
}

// start is stubStart, for functions in which that name is shadowed.
func start() uintptr { return stubStart }

// FilterProgram returns the program of the named filter for two addresses. No stub may be in
// use.
func FilterProgram(name string, a, b uintptr) (found *seccomp.Program) {
	begin, end, hook := stubStart, stubROMapEnd, OnCompile
	defer func() {
		recover() // from what is made of the error
		stubStart, stubROMapEnd, OnCompile = begin, end, hook
	}()
	OnCompile = func(asked string, p *seccomp.Program, addresses []uintptr) ([]bpf.Instruction, error) {
		if asked == name && len(addresses) == 2 && addresses[0] == a && addresses[1] == b {
			found = p
		}
		return nil, errors.New("go no further")
	}
	switch name {
	case StubFilter:
		stubStart, stubROMapEnd = a, a+b
		attachedThread(0, seccomp.Trap)
	case ThreadFilter:
		stubStart = b
		sysmsgThreadRules(a)
	}
	return found
}
