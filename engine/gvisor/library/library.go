// Package library reports which gVisor a program was built from: the upstream module,
// or the patched copy of it. The engine must know, because some of its requests are
// only understood by the patched library.
package library

import (
	"debug/buildinfo"
	"fmt"
	"runtime/debug"
	"slices"
)

// Module is gVisor's path.
const Module = "gvisor.dev/gvisor"

// A Library is the gVisor in a program.
type Library struct {
	// Version is the module's.
	Version string
	// Patched is true of the copy with the patches of third_party/gvisor.
	Patched bool
}

func (l Library) String() string {
	if l.Patched {
		return "gVisor " + l.Version + " with the patches of Bothy"
	}
	return "plain gVisor " + l.Version
}

// Of reads the library from a program's file.
func Of(path string) (Library, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return Library{}, fmt.Errorf("read which gVisor a program was built from: %w", err)
	}
	l, ok := of(info)
	if !ok {
		return Library{}, fmt.Errorf("%s was not built from gVisor", path)
	}
	return l, nil
}

// Own returns this program's library. In tests, for which the go command does not record
// build information, its version is empty.
func Own() Library {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Library{}
	}
	l, _ := of(info)
	return l
}

func of(info *debug.BuildInfo) (l Library, found bool) {
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == Module })
	if i < 0 {
		return Library{}, false
	}
	m := info.Deps[i]
	// A copy replaces the module by a replacement with a folder.
	return Library{Version: m.Version, Patched: m.Replace != nil}, true
}
