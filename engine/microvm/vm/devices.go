package vm

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// device is a node in /dev.
type device struct {
	name         string
	kind, mode   uint32
	major, minor uint32
}

// loops is the number of loop devices; root may make nodes for more.
const (
	loops     = 8
	loopMajor = 7
)

// devices are the devices of a sandbox: those that every program expects, and those that root
// needs for file systems in files and in programs, and for interfaces.
var devices = func() []device {
	list := []device{
		{"fuse", unix.S_IFCHR, 0o666, 10, 229}, {"net/tun", unix.S_IFCHR, 0o666, 10, 200}, {"loop-control", unix.S_IFCHR, 0o660, 10, 237},
	}
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		list = append(list, device{name, unix.S_IFCHR, 0o666, 1, minor})
	}
	list = append(list, device{"tty", unix.S_IFCHR, 0o666, 5, 0})
	for n := range uint32(loops) {
		list = append(list, device{fmt.Sprintf("loop%d", n), unix.S_IFBLK, 0o660, loopMajor, n})
	}
	return list
}()

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

// restrictDevices makes the kernel refuse all other devices to processes in the cgroup. Root
// inside may create device nodes, and could otherwise reach the disks and the console. BPF
// programs that it attaches to cgroups below can only refuse more.
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
	var fd uintptr
	e := unix.EAGAIN // as long as signals interrupt the verifier, such as those of Go's scheduler
	for range 10 {
		if fd, _, e = unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&load)), unsafe.Sizeof(load)); e != unix.EAGAIN {
			break
		}
	}
	runtime.KeepAlive(program)
	runtime.KeepAlive(&licence)
	if e != 0 {
		return os.NewSyscallError("bpf load", e)
	}
	defer unix.Close(int(fd))
	attach := struct{ target, prog, kind, flags, replace uint32 }{
		target: uint32(dir.Fd()), prog: uint32(fd), kind: unix.BPF_CGROUP_DEVICE, flags: unix.BPF_F_ALLOW_MULTI,
	}
	if _, _, e := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_ATTACH, uintptr(unsafe.Pointer(&attach)), unsafe.Sizeof(attach)); e != 0 {
		return os.NewSyscallError("bpf attach", e)
	}
	return nil
}

// deviceProgram reads struct bpf_cgroup_dev_ctx: the type in the low half of the first
// word and the access in the high one, then major and minor. It returns 1 for what is
// allowed.
func deviceProgram() []bpfInsn {
	const (
		load    = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W
		move    = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K
		and     = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		copied  = unix.BPF_ALU | unix.BPF_MOV | unix.BPF_X
		right   = unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K
		unequal = unix.BPF_JMP | unix.BPF_JNE | unix.BPF_K
		below   = unix.BPF_JMP | unix.BPF_JLT | unix.BPF_K
		above   = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
		exit    = unix.BPF_JMP | unix.BPF_EXIT
		context = 1 << 4 // register 1 as the source
	)
	yes := []bpfInsn{{code: move, imm: 1}, {code: exit}}
	no := []bpfInsn{{code: move}, {code: exit}}
	p := []bpfInsn{
		{code: load, regs: 2 | context, off: 0}, {code: copied, regs: 5 | 2<<4}, {code: right, regs: 5, imm: 16}, {code: and, regs: 2, imm: 0xffff},
		{code: load, regs: 3 | context, off: 4}, {code: load, regs: 4 | context, off: 8},
		// A node alone does no harm, and programs that unpack images make some.
		{code: unequal, regs: 5, off: 2, imm: unix.BPF_DEVCG_ACC_MKNOD},
	}
	p = append(append(p, yes...),
		bpfInsn{code: unequal, regs: 2, off: 3, imm: unix.BPF_DEVCG_DEV_BLOCK}, bpfInsn{code: unequal, regs: 3, off: 2, imm: loopMajor})
	p = append(append(p, yes...),
		bpfInsn{code: unequal, regs: 2, off: 4, imm: unix.BPF_DEVCG_DEV_CHAR},
		bpfInsn{code: below, regs: 3, off: 3, imm: ptsFirst}, bpfInsn{code: above, regs: 3, off: 2, imm: ptsLast})
	p = append(p, yes...)
	type node struct{ major, minor uint32 }
	nodes := []node{{ptmxMajor, ptmxMinor}}
	for _, d := range devices {
		if d.kind == unix.S_IFCHR {
			nodes = append(nodes, node{d.major, d.minor})
		}
	}
	for _, n := range nodes {
		p = append(p, bpfInsn{code: unequal, regs: 2, off: 4, imm: unix.BPF_DEVCG_DEV_CHAR},
			bpfInsn{code: unequal, regs: 3, off: 3, imm: int32(n.major)}, bpfInsn{code: unequal, regs: 4, off: 2, imm: int32(n.minor)})
		p = append(p, yes...)
	}
	return append(p, no...)
}
