package files

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

type sysStat = syscall.Stat_t

// setGroups sets the supplementary groups of this thread alone.
func setGroups(groups []uint32) error {
	_, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
	if e != 0 {
		return e
	}
	return nil
}
