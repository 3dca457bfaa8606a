package microvm

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// injectNow is inject for a process that waits in a system call.
func injectNow(pid int, nr uint64, args ...uint64) (result uint64, err error) {
	// Only the thread that traces a tracee gets its stops.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(pid); err != nil {
		return 0, fmt.Errorf("trace QEMU: %w", err)
	}
	defer func() { err = errors.Join(err, unix.PtraceDetach(pid)) }()
	if err := unix.PtraceInterrupt(pid); err != nil {
		return 0, err
	}
	if err := awaitStop(pid); err != nil {
		return 0, err
	}
	var before unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &before); err != nil {
		return 0, err
	}
	// It has just been in a system call, so the instruction before is a system call.
	call := before.Rip - 2
	var code [2]byte
	if _, err := unix.PtracePeekText(pid, uintptr(call), code[:]); err != nil {
		return 0, err
	}
	if code != [2]byte{0x0f, 0x05} || int64(before.Orig_rax) < 0 {
		return 0, errBusy
	}
	regs := before
	regs.Rip, regs.Rax, regs.Orig_rax = call, nr, ^uint64(0)
	for i, to := range []*uint64{&regs.Rdi, &regs.Rsi, &regs.Rdx, &regs.R10, &regs.R8, &regs.R9} {
		*to = 0
		if i < len(args) {
			*to = args[i]
		}
	}
	if err := unix.PtraceSetRegs(pid, &regs); err != nil {
		return 0, err
	}
	if err := unix.PtraceSingleStep(pid); err != nil {
		return 0, err
	}
	if err := awaitStop(pid); err != nil {
		return 0, err
	}
	if err := unix.PtraceGetRegs(pid, &regs); err != nil {
		return 0, err
	}
	return regs.Rax, unix.PtraceSetRegs(pid, &before)
}
