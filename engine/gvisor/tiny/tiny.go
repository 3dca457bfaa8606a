// Package tiny holds programs of one page, for what has to be done by a process of
// one thread, or by one more process, where the start of a Go program would be most of
// the work. Only engine/gvisor uses it.
package tiny

import "golang.org/x/sys/unix"

// File makes a file in memory that can be executed, and changed by nobody. It is
// closed on exec. A program is nil where this host's processor has none.
func File(name string, program []byte) (_ int, err error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if err == unix.EINVAL { // the kernel is older than the flag
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, err
	}
	if _, err = unix.Write(fd, program); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
