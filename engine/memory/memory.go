// Package memory decides how much of the host's memory a sandbox's machine may use.
//
// A sandbox's own limit, memory_mb, is bothy.Limits.MemoryBytes, and the guest enforces it
// by killing the largest process. The host's limit, which only this package determines, is
// higher, to cover what a machine needs in addition; at that limit the host's kernel kills
// the whole machine. docs/limits.md explains both, and a test keeps its numbers true.
package memory

import "github.com/bothy-dev/bothy"

const (
	// GVisorHeadroom is what gVisor's kernel may use in addition to the sandbox's own
	// memory.
	GVisorHeadroom = 256 << 20
	// GVisorProcess is what one of the sandbox's processes costs the host's kernel, in page
	// tables and stacks that are not visible inside.
	GVisorProcess = 160 << 10
	// SnapshotFactor is how many times its usual limit a gVisor machine may use while its
	// user's processes are stopped and its kernel is written or read. Being killed for
	// that would lose everything.
	SnapshotFactor = 3
	// RestoreFactor is how much memory it takes to read a kernel, as a multiple of the size of
	// its file.
	RestoreFactor = 16
	// MicroVMHeadroom is what QEMU may use in addition to its machine's memory.
	MicroVMHeadroom = 384 << 20
)

// GVisor is the host's limit for a gVisor machine that runs.
func GVisor(l bothy.Limits) int64 {
	return l.MemoryBytes() + GVisorHeadroom + int64(l.Processes)*GVisorProcess
}

// GVisorSnapshot is the host's limit while its kernel is written.
func GVisorSnapshot(l bothy.Limits) int64 { return SnapshotFactor * GVisor(l) }

// GVisorRestore is the host's limit while a kernel is read from a file of that size, which
// may be crafted to exhaust memory.
func GVisorRestore(l bothy.Limits, state int64) int64 {
	return min(GVisor(l)+RestoreFactor*state, GVisorSnapshot(l))
}

// MicroVM is the host's limit for a virtual machine with that much memory of its
// own.
func MicroVM(machineMB int) int64 { return int64(machineMB)<<20 + MicroVMHeadroom }
