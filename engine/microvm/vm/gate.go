package vm

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/guest/abi"
)

// seccompData is struct seccomp_data, and seccompNotif and seccompAnswer are struct
// seccomp_notif and seccomp_notif_resp.
type (
	seccompData struct {
		nr   int32
		arch uint32
		ip   uint64
		args [6]uint64
	}
	seccompNotif struct {
		id    uint64
		pid   uint32
		flags uint32
		data  seccompData
	}
	seccompAnswer struct {
		id    uint64
		val   int64
		error int32
		flags uint32
	}
)

// installGate has the kernel ask the holder of the returned descriptor when the guest reports
// that it has been adopted. Any other call passes.
func installGate() (int, error) {
	const (
		number      = 0  // offsetof(struct seccomp_data, nr)
		firstArgLow = 16 // offsetof(struct seccomp_data, args[0])
	)
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_PRCTL, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: firstArgLow},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: abi.PrctlAdopted, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(program)
	if e != 0 {
		return -1, os.NewSyscallError("seccomp", e)
	}
	unix.CloseOnExec(int(fd))
	return int(fd), nil
}

// keepGate opens the gate when the guest asks. For any other process inside, the
// system call does not exist.
func (b *box) keepGate(gate *os.File) {
	fd := gate.Fd()
	for {
		var n seccompNotif
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); e != 0 {
			if e == unix.EINTR || e == unix.ENOENT { // ENOENT: the asking process has died
				continue
			}
			return
		}
		a := seccompAnswer{id: n.id, error: -int32(unix.EINVAL)}
		if group(n.pid) == b.guest.Process.Pid && b.adopted() == nil {
			a.error = 0
		}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a)))
	}
}

// group returns the process that a thread belongs to.
func group(thread uint32) int {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(int(thread)) + "/status")
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Tgid:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	return 0
}
