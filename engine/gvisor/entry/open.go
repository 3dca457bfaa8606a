package entry

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// followsNoLink makes an open with O_DIRECTORY and O_NOFOLLOW refuse a symbolic link, which is
// how programs (Go's os.Root among them) stay inside a folder. The library's kernel follows the
// link unless O_PATH is given as well, so the path is first opened that way, and both must lead
// to the same place. flags is the index of the argument with the flags.
func followsNoLink(open kernel.SyscallFn, flags int) kernel.SyscallFn {
	const folderOnly = unix.O_DIRECTORY | unix.O_NOFOLLOW
	return func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		asked := args[flags].Uint()
		if asked&folderOnly != folderOnly || asked&(unix.O_PATH|unix.O_CREAT) != 0 {
			return open(t, number, args)
		}
		only := args
		only[flags].Value = uintptr(folderOnly | unix.O_PATH | unix.O_CLOEXEC)
		place, control, err := open(t, number, only)
		if err != nil {
			return 0, control, err
		}
		opened, control, err := open(t, number, args)
		if err != nil {
			closeFile(t, place)
			return 0, control, err
		}
		same := samePlace(t, place, opened)
		closeFile(t, place)
		if !same {
			closeFile(t, opened)
			return 0, nil, linuxerr.ENOTDIR
		}
		return lowest(t, opened, asked&unix.O_CLOEXEC != 0)
	}
}

func samePlace(t *kernel.Task, a, b uintptr) bool {
	x, y := t.GetFile(int32(a)), t.GetFile(int32(b))
	if x != nil {
		defer x.DecRef(t)
	}
	if y != nil {
		defer y.DecRef(t)
	}
	return x != nil && y != nil && x.VirtualDentry() == y.VirtualDentry()
}

func closeFile(t *kernel.Task, fd uintptr) {
	if f := t.FDTable().Remove(t, int32(fd)); f != nil {
		f.DecRef(t)
	}
}

// lowest gives an open file the lowest free number, as every open does.
func lowest(t *kernel.Task, fd uintptr, closeOnExec bool) (uintptr, *kernel.SyscallControl, error) {
	f := t.FDTable().Remove(t, int32(fd))
	if f == nil {
		return 0, nil, linuxerr.EBADF // another thread has closed it
	}
	defer f.DecRef(t)
	n, err := t.NewFDFrom(0, f, kernel.FDFlags{CloseOnExec: closeOnExec})
	return uintptr(n), nil, err
}
