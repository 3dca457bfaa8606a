package entry

import (
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"

	"github.com/bothy-dev/bothy/guest/abi"
)

// gate keeps the processes of a snapshot from continuing with the old identity. It is closed
// when the sentry starts. Until process 1 opens it, at the end of the adoption, no other process
// gets through a system call: nothing of the old identity can be read, and nothing can be sent.
//
// A task that waited in a system call when the snapshot was taken restarts that
// call after the restore, so it reaches the gate, too.
var gate = barrier{opened: make(chan struct{})}

type barrier struct {
	isOpen atomic.Bool
	once   sync.Once
	opened chan struct{}
}

func (b *barrier) open() {
	b.once.Do(func() {
		b.isOpen.Store(true)
		close(b.opened)
		resumeGC()
	})
}

// pass returns when the task may continue. One that is interrupted comes back.
func (b *barrier) pass(t *kernel.Task) error {
	if b.isOpen.Load() || isProcessOne(t) || isBegunByProcessOne(t) {
		return nil
	}
	if err := t.Block(b.opened); err != nil {
		return linuxerr.ERESTARTNOINTR
	}
	return nil
}

// isBegunByProcessOne reports whether the task is a child of process 1 that still shares its
// memory: process 1 waits until the child executes another program, and could not open the gate
// before.
func isBegunByProcessOne(t *kernel.Task) bool {
	one := t.Kernel().RootPIDNamespace().ThreadGroupWithID(1)
	if one == nil {
		return false
	}
	shared := false
	one.Leader().WithMuLocked(func(leader *kernel.Task) {
		m := leader.MemoryManager()
		shared = m != nil && m == t.MemoryManager()
	})
	return shared
}

// installGate puts the gate before every system call.
func installGate(table *kernel.SyscallTable) {
	for number, call := range table.Table {
		if inner := call.Fn; inner != nil {
			call.Fn = func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
				if !gate.isOpen.Load() {
					begun.Store(true)
					if caller.restored.Load() && isProcessOne(t) {
						caller.notify()
					}
					calibrateClocks(t.Kernel())
					allowAttaching(t.Kernel())
					if err := gate.pass(t); err != nil {
						return 0, nil, err
					}
				}
				return inner(t, number, args)
			}
			table.Table[number] = call
		}
	}
}

// allowAttaching lets processes trace others of their user, as on Debian, unless this is a restored
// kernel, which has its own setting. Process 1 cannot be traced: it has more capabilities than any
// command, and is not dumpable.
func allowAttaching(k *kernel.Kernel) {
	if !caller.restored.Load() {
		k.YAMAPtraceScope.Store(0)
	}
}

// opening lets process 1 open the gate.
func opening(prctl kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if args[0].Int() == abi.PrctlAdopted && isProcessOne(t) {
			fitTrimmer(t)
			noteMachine(t, args)
			gate.open()
			return 0, nil, nil
		}
		return prctl(t, number, args)
	}
}
