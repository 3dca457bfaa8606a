package vm

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// devices are those that there are in a sandbox.
var devices = []struct {
	name         string
	major, minor uint32
}{
	{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
}

// terminals are the pseudo terminals: their multiplexer, and the majors of their ends.
const (
	ptmxMajor, ptmxMinor = 5, 2
	ptsFirst, ptsLast    = 136, 143
)

type bpfInsn struct {
	code byte
	regs byte // destination in the low half, source in the high one
	off  int16
	imm  int32
}

// restrictDevices has the kernel refuse every device but these to what is in the
// cgroup. Root inside may make nodes, and so could reach the disks and the console.
func restrictDevices(group string) error {
	dir, err := os.Open(group)
	if err != nil {
		return err
	}
	defer dir.Close()
	program := deviceProgram()
	licence := [...]byte{'A', 'p', 'a', 'c', 'h', 'e', 0}
	load := struct {
		kind, count    uint32
		insns, licence uint64
		_              [96]byte
	}{
		kind: unix.BPF_PROG_TYPE_CGROUP_DEVICE, count: uint32(len(program)),
		insns: uint64(uintptr(unsafe.Pointer(&program[0]))), licence: uint64(uintptr(unsafe.Pointer(&licence[0]))),
	}
	fd, _, e := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&load)), unsafe.Sizeof(load))
	runtime.KeepAlive(program)
	runtime.KeepAlive(&licence)
	if e != 0 {
		return os.NewSyscallError("bpf load", e)
	}
	defer unix.Close(int(fd))
	attach := struct{ target, prog, kind, flags, replace uint32 }{
		target: uint32(dir.Fd()), prog: uint32(fd), kind: unix.BPF_CGROUP_DEVICE,
	}
	if _, _, e := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_ATTACH, uintptr(unsafe.Pointer(&attach)), unsafe.Sizeof(attach)); e != 0 {
		return os.NewSyscallError("bpf attach", e)
	}
	return nil
}

// deviceProgram reads struct bpf_cgroup_dev_ctx: the kind in the low half of the first
// word, then major and minor. It returns 1 for what is allowed.
func deviceProgram() []bpfInsn {
	const (
		load    = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W
		move    = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K
		and     = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		unequal = unix.BPF_JMP | unix.BPF_JNE | unix.BPF_K
		below   = unix.BPF_JMP | unix.BPF_JLT | unix.BPF_K
		above   = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
		exit    = unix.BPF_JMP | unix.BPF_EXIT
		context = 1 << 4 // register 1 as the source
	)
	yes := []bpfInsn{{code: move, imm: 1}, {code: exit}}
	no := []bpfInsn{{code: move}, {code: exit}}
	p := []bpfInsn{
		{code: load, regs: 2 | context, off: 0}, {code: and, regs: 2, imm: 0xffff},
		{code: load, regs: 3 | context, off: 4}, {code: load, regs: 4 | context, off: 8},
		{code: unequal, regs: 2, off: 4, imm: unix.BPF_DEVCG_DEV_CHAR},
		{code: below, regs: 3, off: 3, imm: ptsFirst}, {code: above, regs: 3, off: 2, imm: ptsLast},
	}
	p = append(p, yes...)
	type node struct{ major, minor uint32 }
	nodes := []node{{ptmxMajor, ptmxMinor}}
	for _, d := range devices {
		nodes = append(nodes, node{d.major, d.minor})
	}
	for _, n := range nodes {
		p = append(p, bpfInsn{code: unequal, regs: 2, off: 4, imm: unix.BPF_DEVCG_DEV_CHAR},
			bpfInsn{code: unequal, regs: 3, off: 3, imm: int32(n.major)}, bpfInsn{code: unequal, regs: 4, off: 2, imm: int32(n.minor)})
		p = append(p, yes...)
	}
	return append(p, no...)
}
