package command

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfoPID returns si_pid, which is the first field of the part of siginfo_t
// that depends on the signal: after three ints, aligned to a pointer.
func siginfoPID(info *unix.Siginfo) int {
	const offset = (3*4 + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), offset)))
}
