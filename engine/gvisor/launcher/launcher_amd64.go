package launcher

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

// Confine returns a program that executes the one at ConfineProgram, with its own
// arguments and environment, in a process that is a child of the caller's, and ends. That
// process is in new namespaces (user, PID, mount, IPC and UTS) and a new session. Its pid
// is written to ConfinePID, and it waits at ConfineGo until its user namespace's id maps
// were written. It then is root there, with no capability but CAP_SYS_PTRACE, in an empty
// root that is read-only except for /proc. No process there keeps more rights, except a
// child of it that waits at ConfineUmount, then unmounts /proc, and exits with 0 if all of
// that worked.
//
// Each of them exits with the error number if anything fails, or with 127 if what it waits for
// is never sent. lastCap is the highest capability that the host knows.
//
// The namespaces are not created by a direct child of the caller, because that could not
// share the caller's memory until it executes the program: copying the page tables of a
// large program takes longer than all of this.
func Confine(lastCap int) []byte {
	const (
		spaces  = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID
		flags   = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
		mounted = flags | unix.MS_RDONLY
	)
	// It is mounted on a directory that every host has. The mount namespace is its own, and
	// belongs to another user namespace than the host's, so what is mounted stays there.
	root, proc, dot := text("/tmp"), text("/tmp/proc"), text(".")
	calls := []call{
		{number: unix.SYS_CLONE, args: args{number(unix.SIGCHLD | unix.CLONE_PARENT | spaces)}, zero: "child"},
		{number: unix.SYS_WRITE, args: args{number(ConfinePID), result, number(4)}, more: "done"},

		{label: "child", number: unix.SYS_READ, args: args{number(ConfineGo), result, number(1)}, zero: "silence"},
		{number: unix.SYS_FCNTL, args: args{number(0), number(unix.F_DUPFD_CLOEXEC), number(ConfineHighest)}, less: "next"},
		{number: unix.SYS_SETSID},
		{number: unix.SYS_SETRESGID, args: args{number(0), number(0), number(0)}},
		{number: unix.SYS_SETRESUID, args: args{number(0), number(0), number(0)}},

		{number: unix.SYS_MOUNT, args: args{text("root"), root, text("tmpfs"), number(flags)}},
		{number: unix.SYS_MKDIR, args: args{proc, number(0o555)}},
		{number: unix.SYS_MOUNT, args: args{text("proc"), proc, text("proc"), number(mounted)}, zero: "sealed", less: "next"},
		// In a container, something may be mounted in the host's /proc that a new one
		// would show.
		{number: unix.SYS_MOUNT, args: args{text("/proc"), proc, number(0), number(unix.MS_BIND | unix.MS_REC)}},
		{label: "sealed", number: unix.SYS_MOUNT, args: args{number(0), root, number(0), number(unix.MS_REMOUNT | unix.MS_BIND | mounted)}},
		{number: unix.SYS_CHDIR, args: args{root}},
		{number: unix.SYS_PIVOT_ROOT, args: args{dot, dot}},
		{number: unix.SYS_UMOUNT2, args: args{dot, number(unix.MNT_DETACH)}},
		{number: unix.SYS_CHDIR, args: args{text("/")}},
		{number: unix.SYS_CLONE, args: args{number(unix.SIGCHLD)}, zero: "umounter"},
	}
	for c := range lastCap + 1 {
		if c != unix.CAP_SYS_PTRACE {
			calls = append(calls, call{number: unix.SYS_PRCTL, args: args{number(unix.PR_CAPBSET_DROP), number(c)}})
		}
	}
	const kept = 1 << unix.CAP_SYS_PTRACE
	calls = append(calls,
		call{number: unix.SYS_CAPSET, args: args{
			words(unix.LINUX_CAPABILITY_VERSION_3, 0), // this thread
			words(kept, kept, 0, 0, 0, 0),             // effective, permitted, inheritable; those above 31
		}},
		call{number: unix.SYS_CLOSE, args: args{number(ConfinePID)}},
		call{number: unix.SYS_CLOSE, args: args{number(ConfineGo)}},
		call{number: unix.SYS_CLOSE, args: args{number(ConfineUmount)}},
		call{number: unix.SYS_FCNTL, args: args{number(ConfineProgram), number(unix.F_SETFD), number(unix.FD_CLOEXEC)}},
		call{number: unix.SYS_EXECVEAT, args: args{number(ConfineProgram), text(""), arguments, environment, number(unix.AT_EMPTY_PATH)}},

		call{label: "fail", number: unix.SYS_EXIT, args: args{failure}},
		call{label: "silence", number: unix.SYS_EXIT, args: args{number(127)}},
		call{label: "umounter", number: unix.SYS_READ, args: args{number(ConfineUmount), result, number(1)}, zero: "silence"},
		call{number: unix.SYS_UMOUNT2, args: args{text("/proc"), number(unix.MNT_DETACH)}},
		call{label: "done", number: unix.SYS_EXIT, args: args{number(0)}},
	)
	return program(calls)
}

// A call is a system call of a program. Depending on whether its result is zero, more or less,
// the program continues at a label; by default at the next call, or at "fail" if it is less.
type call struct {
	label            string
	number           uint32
	args             args
	zero, more, less string
}

// args are a call's first arguments. The others are 0.
type args []arg

// An arg is a number, or the address of data.
type arg struct {
	number int32
	data   []byte
}

func number[T ~int](n T) arg { return arg{number: int32(n)} }

func text(s string) arg { return arg{data: append([]byte(s), 0)} }

func words(w ...uint32) arg {
	var b []byte
	for _, n := range w {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return arg{data: b}
}

// Arguments that are only known when the program runs are offsets from the
// beginning of its stack.
var (
	result      = arg{number: -2} // address of the last call's result
	arguments   = arg{number: -3}
	environment = arg{number: -4}
	failure     = arg{number: -5} // the negated result of the last call
)

//go:generate go test -run InterpreterIsAssembled -update .

const callSize = 9 * 4

// The address of a program, and the size of what precedes its code.
const (
	base       = 0x400000
	headerSize = 64 + 56
)

// program is a static program for x86-64 in a single segment that may be read and executed: the
// interpreter, the calls, and their data.
func program(calls []call) []byte {
	labels := map[string]int{}
	for i, c := range calls {
		labels[c.label] = i * callSize
	}
	var code, data []byte
	dataAt := base + headerSize + len(interpreter) + len(calls)*callSize
	for i, c := range calls {
		record := [callSize / 4]uint32{c.number}
		for j, a := range c.args {
			record[1+j] = uint32(a.number)
			if a.data != nil {
				record[1+j] = uint32(dataAt + len(data))
				data = append(data, a.data...)
			}
		}
		for j, to := range [...]string{c.zero, c.more, c.less} {
			at := (i + 1) * callSize
			if to == "" && j == 2 {
				to = "fail"
			}
			if to != "" && to != "next" {
				var ok bool
				if at, ok = labels[to]; !ok {
					panic("no call is labelled " + to)
				}
			}
			record[6+j] = uint32(at)
		}
		for _, w := range record {
			code = binary.LittleEndian.AppendUint32(code, w)
		}
	}
	size := uint64(headerSize + len(interpreter) + len(code) + len(data))
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01")
	b.Write(make([]byte, 9))
	for _, v := range []any{
		// An executable for x86-64; its entry point, and the offset of its program header.
		uint16(2), uint16(62), uint32(1), uint64(base + headerSize), uint64(64), uint64(0), uint32(0),
		uint16(64), uint16(56), uint16(1), uint16(64), uint16(0), uint16(0),
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000),
	} {
		binary.Write(&b, binary.LittleEndian, v)
	}
	return slices.Concat(b.Bytes(), interpreter, code, data)
}
