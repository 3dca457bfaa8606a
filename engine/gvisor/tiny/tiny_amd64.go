package tiny

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Umount returns a program that waits for one byte on descriptor 3, unmounts /proc,
// and exits with 0 if all of that worked.
func Umount() []byte { return program(umountCode, []byte("/proc\x00")) }

var umountCode = []byte{
	0x31, 0xc0, // xor eax, eax (read)
	0x6a, 0x03, 0x5f, // push 3; pop rdi
	0x50,             // push rax
	0x48, 0x89, 0xe6, // mov rsi, rsp
	0x6a, 0x01, 0x5a, // push 1; pop rdx
	0x0f, 0x05, // syscall
	0xff, 0xc8, // dec eax
	0x75, 0x11, // jnz end
	0xb8, 0xa6, 0x00, 0x00, 0x00, // mov eax, 166 (umount2)
	0x48, 0x8d, 0x3d, 0x12, 0x00, 0x00, 0x00, // lea rdi, [data]
	0x6a, 0x02, 0x5e, // push MNT_DETACH; pop rsi
	0x0f, 0x05, // syscall
	0x31, 0xff, // end: xor edi, edi
	0x85, 0xc0, // test eax, eax
	0x40, 0x0f, 0x95, 0xc7, // setne dil
	0x6a, 0x3c, 0x58, // push 60 (exit); pop rax
	0x0f, 0x05, // syscall
}

const (
	capSetPCap   = 8
	capSysPtrace = 19
	capSysAdmin  = 21
)

// Confine returns a program that executes its first argument, with the other ones as
// that one's, in a process that is a child of the caller's, and ends. That process is
// in new namespaces (user, PID, mount, IPC and UTS) and a new session. It is told of at
// ConfinePID, and waits at ConfineGo until somebody has said who root of its user
// namespace is. It then is that root, with no capability but CAP_SYS_PTRACE and
// CAP_SYS_ADMIN. The second is not in its bounding set: once given up it is gone for
// good. The first process exits with the number of the error if it can make no other,
// and both exit with 127 if anything else fails.
//
// The namespaces are not made for a child of the caller itself, because that could not
// have the caller's memory until it executes the program: to copy the page tables of a
// large program takes longer than all of this.
func Confine() []byte {
	var caps bytes.Buffer
	const kept = 1<<capSysPtrace | 1<<capSysAdmin
	// It drops the bounding set with CAP_SETPCAP, which the next program does not get.
	const needed = kept | 1<<capSetPCap
	for _, v := range []uint32{
		0x20080522, 0, // _LINUX_CAPABILITY_VERSION_3, this thread
		needed, needed, kept, // effective, permitted, inheritable
		0, 0, 0, // the same of those above 31
	} {
		binary.Write(&caps, binary.LittleEndian, v)
	}
	return program(slices.Concat(beginCode, confineCode), caps.Bytes())
}

// beginCode ends where the code behind it begins, in the new process.
var beginCode = []byte{
	0xbf, 0x11, 0x80, 0x02, 0x3c, // mov edi, SIGCHLD|CLONE_PARENT|NEWNS|NEWUTS|NEWIPC|NEWUSER|NEWPID
	0x31, 0xf6, // xor esi, esi
	0x31, 0xd2, // xor edx, edx
	0x45, 0x31, 0xd2, // xor r10d, r10d
	0x45, 0x31, 0xc0, // xor r8d, r8d
	0x6a, 0x38, 0x58, // push 56 (clone); pop rax
	0x0f, 0x05, // syscall
	0x50,       // push rax
	0x85, 0xc0, // test eax, eax
	0x74, 0x1d, // jz child
	0x79, 0x05, // jns made
	0xf7, 0xd8, // neg eax
	0x97,       // xchg edi, eax
	0xeb, 0x59, // jmp exit
	0x6a, ConfinePID, 0x5f, // made: push ConfinePID; pop rdi
	0x48, 0x89, 0xe6, // mov rsi, rsp
	0x6a, 0x04, 0x5a, // push 4; pop rdx
	0x6a, 0x01, 0x58, // push 1 (write); pop rax
	0x0f, 0x05, // syscall
	0x39, 0xd0, // cmp eax, edx
	0x75, 0x44, // jne fail
	0x31, 0xff, // xor edi, edi
	0xeb, 0x43, // jmp exit
	0x6a, ConfineGo, 0x5f, // child: push ConfineGo; pop rdi
	0x48, 0x89, 0xe6, // mov rsi, rsp
	0x6a, 0x01, 0x5a, // push 1; pop rdx
	0x31, 0xc0, // xor eax, eax (read)
	0x0f, 0x05, // syscall
	0xff, 0xc8, // dec eax
	0x75, 0x2f, // jnz fail
	0x5f,       // pop rdi
	0x31, 0xff, // xor edi, edi
	0xbe, 0x06, 0x04, 0x00, 0x00, // mov esi, F_DUPFD_CLOEXEC
	0xba, ConfineHighest, 0x00, 0x00, 0x00, // mov edx, ConfineHighest
	0x6a, 0x48, 0x58, // push 72 (fcntl); pop rax
	0x0f, 0x05, // syscall
	0x6a, 0x70, 0x58, // push 112 (setsid); pop rax
	0x0f, 0x05, // syscall
	0x31, 0xff, // xor edi, edi
	0x31, 0xf6, // xor esi, esi
	0x31, 0xd2, // xor edx, edx
	0x6a, 0x77, 0x58, // push 119 (setresgid); pop rax
	0x0f, 0x05, // syscall
	0x85, 0xc0, // test eax, eax
	0x75, 0x09, // jnz fail
	0x6a, 0x75, 0x58, // push 117 (setresuid); pop rax
	0x0f, 0x05, // syscall
	0x85, 0xc0, // test eax, eax
	0x74, 0x08, // jz end
	0x6a, 0x7f, 0x5f, // fail: push 127; pop rdi
	0x6a, 0x3c, 0x58, // exit: push 60 (exit); pop rax
	0x0f, 0x05, // syscall
	// end:
}

var confineCode = []byte{
	0x48, 0x8d, 0x3d, 0x4c, 0x00, 0x00, 0x00, // lea rdi, [data]
	0x48, 0x8d, 0x35, 0x4d, 0x00, 0x00, 0x00, // lea rsi, [data+8]
	0x6a, 0x7e, 0x58, // push 126 (capset); pop rax
	0x0f, 0x05, // syscall
	0x85, 0xc0, // test eax, eax
	0x75, 0x34, // jnz fail
	0x31, 0xdb, // xor ebx, ebx
	0x83, 0xfb, capSysPtrace, // again: cmp ebx, CAP_SYS_PTRACE
	0x74, 0x10, // je next
	0x6a, 0x18, 0x5f, // push PR_CAPBSET_DROP; pop rdi
	0x89, 0xde, // mov esi, ebx
	0xb8, 0x9d, 0x00, 0x00, 0x00, // mov eax, 157 (prctl)
	0x0f, 0x05, // syscall
	0x85, 0xc0, // test eax, eax
	0x75, 0x04, // jnz last
	0xff, 0xc3, // next: inc ebx
	0xeb, 0xe7, // jmp again
	0x83, 0xf8, 0xea, // last: cmp eax, -EINVAL (there are no more)
	0x75, 0x14, // jne fail
	0x59,                   // pop rcx (argc)
	0x48, 0x8b, 0x3c, 0x24, // mov rdi, [rsp] (argv[0])
	0x48, 0x8d, 0x74, 0x24, 0x08, // lea rsi, [rsp+8] (argv+1)
	0x48, 0x8d, 0x54, 0xcc, 0x08, // lea rdx, [rsp+rcx*8+8] (envp)
	0x6a, 0x3b, 0x58, // push 59 (execve); pop rax
	0x0f, 0x05, // syscall
	0x6a, 0x7f, 0x5f, // fail: push 127; pop rdi
	0x6a, 0x3c, 0x58, // push 60 (exit); pop rax
	0x0f, 0x05, // syscall
}

// program is a static program for x86-64, all of which is one segment that may be read
// and executed: the code, and the data behind it.
func program(code, data []byte) []byte {
	const (
		base       = 0x400000
		headerSize = 64 + 56
	)
	size := uint64(headerSize + len(code) + len(data))
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01")
	b.Write(make([]byte, 9))
	for _, v := range []any{
		// An executable for x86-64; where it begins, and where the segment is told of.
		uint16(2), uint16(62), uint32(1), uint64(base + headerSize), uint64(64), uint64(0), uint32(0),
		uint16(64), uint16(56), uint16(1), uint16(64), uint16(0), uint16(0),
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000),
	} {
		binary.Write(&b, binary.LittleEndian, v)
	}
	return slices.Concat(b.Bytes(), code, data)
}
