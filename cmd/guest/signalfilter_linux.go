package main

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// blockSignalsToInit keeps root in the sandbox from killing process 1, on kernels that do
// not protect it themselves. It installs a seccomp filter, which every command inherits:
// calls that send a signal to the process id 1 fail. tgkill is not filtered, because the
// Go runtime needs it.
func blockSignalsToInit() error {
	const (
		number      = 0  // offsetof(struct seccomp_data, nr)
		firstArgLow = 16 // offsetof(struct seccomp_data, args[0]), on little-endian machines
	)
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	equal := func(value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: yes, Jf: no}
	}
	answer := func(value uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value}
	}
	program := []unix.SockFilter{
		load(number),
		equal(unix.SYS_KILL, 3, 0),
		equal(unix.SYS_RT_SIGQUEUEINFO, 2, 0),
		equal(unix.SYS_PIDFD_OPEN, 1, 0),
		answer(unix.SECCOMP_RET_ALLOW),
		load(firstArgLow),
		equal(1, 0, 1),
		answer(unix.SECCOMP_RET_ERRNO | uint32(syscall.EPERM)),
		answer(unix.SECCOMP_RET_ALLOW),
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(program)
	if e != 0 {
		return os.NewSyscallError("seccomp", e)
	}
	return nil
}

// dropInheritable empties the inheritable set of capabilities, which execve keeps
// in addition to the bounding set.
func dropInheritable() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	if data[0].Inheritable == 0 && data[1].Inheritable == 0 {
		return nil
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	runtime.KeepAlive(&data)
	if e != 0 {
		return os.NewSyscallError("capset", e)
	}
	return nil
}
