// Package launcher holds a one-page program in machine code that starts a sentry. The work
// requires a process with a single thread, and starting a Go program for it would be most of the
// work. Only engine/gvisor uses it.
package launcher

import "golang.org/x/sys/unix"

// The descriptors by which Confine's program and its starter communicate. The process
// that it creates has none of them when it executes the other program.
const (
	// ConfinePID receives, as 4 bytes, the number of the process that it makes.
	ConfinePID = iota + 3
	// ConfineGo is where it waits for one byte.
	ConfineGo
	// ConfineUmount is where its child waits for one byte.
	ConfineUmount
	// ConfineProgram is the program that it executes.
	ConfineProgram
	// ConfineFirst is the first descriptor that it leaves alone.
	ConfineFirst
)

// ConfineHighest is the number up to which there is room for that process's descriptors. Once it
// has several threads, growing the table would take some milliseconds.
const ConfineHighest = 255

// File makes a file in memory that can be executed but not changed. It is closed on exec.
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
