// Package abi is the interface between the guest, as process 1 of a sandbox, and the kernel
// below it: operations of prctl(2) and variables of process 1's environment. Only guest and
// engine use it. Both ends come from one build, as a snapshot's memory is restored by the build
// that wrote it.
package abi

// Variables by which an engine tells process 1 what it need not do itself.
const (
	// EnvSpared says that the kernel protects process 1 from signals and inspection by other
	// processes, as Linux does.
	EnvSpared = "BOTHY_INIT_SPARED"

	// EnvBound says that the engine has already bounded what commands can gain by
	// becoming root.
	EnvBound = "BOTHY_INIT_BOUND"

	// EnvCommandsCgroup names the cgroup's folder in which commands start. Without it they start
	// in the guest's own.
	EnvCommandsCgroup = "BOTHY_COMMANDS_CGROUP"
)

// Operations of prctl(2) for process 1. A kernel that does not know one returns an error.
const (
	// PrctlAdopted tells the kernel that the sandbox has its identity: before that, an
	// engine holds back every other process. Its arguments are the machine's id, as an
	// address and a length.
	PrctlAdopted = 0x626f7468

	// PrctlSplice copies bytes from one descriptor to another in the kernel. Its arguments
	// are the source, the destination and the most bytes to copy. It waits for the
	// source, and returns how many bytes it copied, 0 at the source's end. Reading and
	// writing them instead costs two context switches for each packet.
	PrctlSplice = 0x626f7469

	// PrctlBatch executes a batch of system calls, as each single one costs two context
	// switches. A child of process 1 that shares its memory may use it too. Its arguments are
	// the address of the first BatchCall, their number, and whether to continue after one that
	// fails. Each is read when its turn comes, so an earlier call can write a later one's
	// arguments. It returns the result of the last call that was executed, or its error.
	PrctlBatch = 0x626f746a
)

// BatchCall is a system call in a batch. Only the last of a batch may wait.
type BatchCall struct {
	Number uint32
	// Spare receives the first word of a call that writes two; the second goes into Args[0].
	Spare uint32
	Args  [6]uint64
	// Result is what the call returned, or its negative error number.
	Result int64
}
