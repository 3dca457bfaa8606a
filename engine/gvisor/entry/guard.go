package entry

import (
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/limits"
	_ "gvisor.dev/gvisor/pkg/sentry/syscalls/linux" // has tables of calls

	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
)

// guards run before system calls. They add what Linux does and the library's kernel omits. A
// guard that returns an error refuses the call.
var guards = map[string]guard{
	// Signals that process 1 does not handle cannot end it under Linux. Here
	// `kill -STOP 1` would make the sandbox deaf to the server.
	"kill":              sparesProcessOne(func(a arch.SyscallArguments) bool { return a[1].Int() != 0 }),
	"tkill":             sparesProcessOne(func(a arch.SyscallArguments) bool { return a[1].Int() != 0 }),
	"tgkill":            sparesProcessOne(func(a arch.SyscallArguments) bool { return a[2].Int() != 0 }),
	"rt_sigqueueinfo":   sparesProcessOne(func(a arch.SyscallArguments) bool { return a[1].Int() != 0 }),
	"rt_tgsigqueueinfo": sparesProcessOne(func(a arch.SyscallArguments) bool { return a[2].Int() != 0 }),
	"prlimit64":         sparesProcessOne(func(a arch.SyscallArguments) bool { return a[2].Pointer() != 0 }),
	"pidfd_open":        sparesProcessOne(func(arch.SyscallArguments) bool { return true }),

	// Linux enforces RLIMIT_NPROC, and starts nothing without memory. Here a fork bomb would
	// continue until the host's kernel ends the sandbox.
	"clone":  hasRoom,
	"clone3": hasRoom,
	"fork":   hasRoom,
	"vfork":  hasRoom,
}

type guard func(t *kernel.Task, args arch.SyscallArguments) error

// wraps change what system calls do.
var wraps = map[string]wrap{
	"kill":       notifyOnKill,
	"exit_group": tuned(tuning.EarlyClose, leaving),
	"listen":     tuned(tuning.Announce, notifyOnListen),
	"prctl": func(call kernel.SyscallFn) kernel.SyscallFn {
		return opening(tuned(tuning.Splice, splicing)(tuned(tuning.Batch, calling)(call)))
	},
	"nanosleep": tuned(tuning.Naps, minNanosleep),
	"open":      func(call kernel.SyscallFn) kernel.SyscallFn { return followsNoLink(call, 1) },
	"openat":    func(call kernel.SyscallFn) kernel.SyscallFn { return followsNoLink(call, 2) },
}

type wrap func(kernel.SyscallFn) kernel.SyscallFn

// tuned returns a wrap, or nothing if that is switched off.
func tuned(name string, w wrap) wrap {
	if tuning.On(name) {
		return w
	}
	return func(call kernel.SyscallFn) kernel.SyscallFn { return call }
}

// installGuards puts them before the calls of the architectures known here.
func installGuards() {
	for _, table := range kernel.SyscallTables() {
		for number, call := range table.Table {
			if g, ok := guards[call.Name]; ok {
				call.Fn = g.before(call.Fn)
			}
			if w, ok := wraps[call.Name]; ok {
				call.Fn = w(call.Fn)
			}
			table.Table[number] = call
		}
		installGate(table)
		table.Init()
	}
}

// and is a guard that refuses whatever either of two guards refuses.
func (g guard) and(other guard) guard {
	if g == nil {
		return other
	}
	return func(t *kernel.Task, args arch.SyscallArguments) error {
		if err := g(t, args); err != nil {
			return err
		}
		return other(t, args)
	}
}

func (g guard) before(call kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if err := g(t, args); err != nil {
			return 0, nil, err
		}
		return call(t, number, args)
	}
}

// notifyOnKill notifies the memory watch when process 1 has killed a process.
func notifyOnKill(kill kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		n, control, err := kill(t, number, args)
		if err == nil && unix.Signal(args[1].Int()) == unix.SIGKILL && isProcessOne(t) {
			memory.killed()
		}
		return n, control, err
	}
}

// sparesProcessOne keeps a call whose first argument names a process from
// process 1, if it changes something there.
func sparesProcessOne(changes func(arch.SyscallArguments) bool) guard {
	return func(t *kernel.Task, args arch.SyscallArguments) error {
		id := kernel.ThreadID(args[0].Int())
		if id <= 0 || !changes(args) {
			return nil
		}
		target := t.PIDNamespace().TaskWithID(id)
		if target != nil && target.ThreadGroup() != t.ThreadGroup() && isProcessOne(target) {
			return linuxerr.EPERM
		}
		return nil
	}
}

// hasRoom allows a new process or thread while the sandbox has fewer than process 1's limit, and
// memory left. Process 1 itself may start more: a full sandbox can still be helped through it.
func hasRoom(t *kernel.Task, _ arch.SyscallArguments) error {
	root := t.Kernel().RootPIDNamespace()
	one := root.ThreadGroupWithID(1)
	memory.started(t.Kernel())
	if one == nil || t.ThreadGroup() == one {
		return nil
	}
	if uint64(root.NumTasks()) >= one.Limits().Get(limits.ProcessCount).Cur {
		// A fork bomb at its limit does nothing but ask again. The more of it there is, the longer each
		// waits, so that others still get processor time.
		t.BlockWithTimeout(nil, true, refusalPause+time.Duration(root.NumTasks())*time.Millisecond)
		return linuxerr.EAGAIN
	}
	return hasMemory(t)
}

func isProcessOne(t *kernel.Task) bool {
	return t.ThreadGroup().IsInitIn(t.Kernel().RootPIDNamespace())
}
