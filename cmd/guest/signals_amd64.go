package main

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// handlers returns the addresses of a signal handler that does nothing, and of what the
// kernel returns to from it.
func handlers() (caught, restore uintptr)

// The functions at these addresses.
func caught()
func restore()

// sigaction is struct kernel_sigaction.
type sigaction struct {
	handler, flags, restorer, mask uintptr
}

const (
	saRestorer = 0x0400_0000
	saOnStack  = 0x0800_0000
	saRestart  = 0x1000_0000
)

// catch has this process handle signals, and do nothing. signal.Notify would have two
// threads wait for each other for each of them.
func catch(signals ...syscall.Signal) error {
	handler, restorer := handlers()
	for _, s := range signals {
		act := sigaction{handler: handler, flags: saRestorer | saOnStack | saRestart, restorer: restorer}
		_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&act)), 0, unsafe.Sizeof(act.mask), 0, 0)
		if e != 0 {
			return os.NewSyscallError("rt_sigaction", e)
		}
	}
	return nil
}
