package command

import (
	"cmp"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/guest/abi"
)

// isPlain reports whether a command, like most, has empty input, no terminal, two outputs, and
// no other special settings.
func (s *Spec) isPlain() bool {
	return s.Terminal == nil && !s.Stdin && len(s.Input) == 0 && len(s.Extra) == 0 && !s.MergeStderr
}

// cloneArgs is the argument of clone3(2) in its first version.
type cloneArgs struct {
	Flags, PIDFD, ChildTID, ParentTID, ExitSignal, Stack, StackSize, TLS uint64
}

const cloneClearSighand = 0x100000000

// forkPlain starts the program of a plain command with two batches of system calls,
// where syscall.ForkExec would make some hundred calls. It returns the pid and the
// command's output pipes.
func (m *Manager) forkPlain(path string, argv []string, attr *syscall.ProcAttr) (int, *stdio, error) {
	child, pipes, err := m.childRow(path, argv, attr)
	defer child.release()
	if err != nil {
		return 0, nil, err
	}
	parent := row{calls: make([]abi.BatchCall, 0, len(pipes)+1)}
	defer parent.release()
	for _, i := range pipes {
		// The read end goes into Spare, the write end becomes the first argument.
		parent.add(unix.SYS_PIPE2, child.addressOf(i)+4, unix.O_CLOEXEC|unix.O_NONBLOCK)
	}
	clone := &cloneArgs{
		// No handler of ours may run in the child, which shares our memory.
		Flags:      unix.CLONE_VM | unix.CLONE_VFORK | cloneClearSighand,
		ExitSignal: uint64(unix.SIGCHLD),
	}
	parent.add(unix.SYS_CLONE3, pointer(&parent, clone), 64)
	failed := &child.calls[len(child.calls)-1]
	pid := int(forkRow(unix.SYS_PRCTL, abi.PrctlBatch, parent.address(), uintptr(len(parent.calls)),
		child.address(), uintptr(len(child.calls)-1)))
	var ours, theirs []int
	for _, i := range pipes {
		if c := child.calls[i]; c.Spare != 0 {
			ours, theirs = append(ours, int(c.Spare)), append(theirs, int(c.Args[0]))
		}
	}
	closeAll(theirs)
	if pid > 0 && failed.Result != 0 {
		var status unix.WaitStatus
		for {
			if _, err := unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
				break
			}
		}
		pid = int(failed.Result)
	}
	if pid < 0 {
		closeAll(ours)
		return 0, nil, syscall.Errno(-pid)
	}
	io := &stdio{outputs: make([]source, 0, len(ours))}
	for i, stream := range [...]Stream{Stdout, Stderr} {
		io.outputs = append(io.outputs, source{os.NewFile(uintptr(ours[i]), "|0"), stream})
	}
	return pid, io, nil
}

// childRow is the child's batch, followed by an empty record. It also returns which of the calls
// take a pipe as argument. The row must be released even on failure.
func (m *Manager) childRow(path string, argv []string, attr *syscall.ProcAttr) (*row, []int, error) {
	r := &row{calls: make([]abi.BatchCall, 0, 13)}
	if path == "" || len(argv) == 0 {
		return r, nil, syscall.ENOENT
	}
	program, err := text(r, path)
	args, aerr := vector(r, argv)
	env, eerr := vector(r, attr.Env)
	if err := cmp.Or(err, aerr, eerr); err != nil {
		return r, nil, err
	}
	r.add(unix.SYS_SETSID)
	// The Go runtime has raised this process's limit; syscall.ForkExec handles that.
	if m.openFiles.Cur > 0 {
		r.add(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, pointer(r, &m.openFiles), 0)
	}
	if c := attr.Sys.Credential; c != nil {
		if len(c.Groups) > 0 {
			r.add(unix.SYS_SETGROUPS, uint64(len(c.Groups)), pointer(r, &c.Groups[0]))
		} else {
			r.add(unix.SYS_SETGROUPS)
		}
		r.add(unix.SYS_SETGID, uint64(c.Gid))
		r.add(unix.SYS_SETUID, uint64(c.Uid))
	}
	if attr.Dir != "" {
		dir, err := text(r, attr.Dir)
		if err != nil {
			return r, nil, err
		}
		r.add(unix.SYS_CHDIR, dir)
	}
	r.add(unix.SYS_DUP3, uint64(m.null.Fd()), 0)
	pipes := []int{len(r.calls), len(r.calls) + 1}
	r.add(unix.SYS_DUP3, 0, 1)
	r.add(unix.SYS_DUP3, 0, 2)
	// Only the end that we read is non-blocking.
	r.add(unix.SYS_FCNTL, 1, unix.F_SETFL, 0)
	r.add(unix.SYS_FCNTL, 2, unix.F_SETFL, 0)
	r.add(unix.SYS_EXECVE, program, args, env)
	r.calls = append(r.calls, abi.BatchCall{})
	return r, pipes, nil
}

// closeAll closes descriptors in one batch.
func closeAll(fds []int) {
	r := row{calls: make([]abi.BatchCall, 0, len(fds))}
	defer r.release()
	for _, fd := range fds {
		r.add(unix.SYS_CLOSE, uint64(fd))
	}
	if len(fds) > 0 {
		r.runAll()
	}
}
