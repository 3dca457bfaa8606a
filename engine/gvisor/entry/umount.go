package entry

import (
	"fmt"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/specutils"
)

// presetUmounter gives the library a small program to unmount /proc with, when the
// sentry itself may no longer. Otherwise it is this whole program once more, whose
// start is a fifteenth of the work of a sandbox's. Where that cannot be done the
// library does as always.
func presetUmounter() {
	program := umountProgram()
	if program == nil {
		return
	}
	fd, err := programInMemory("umount", program)
	if err != nil {
		log.Warningf("Unmounting /proc with all of this program: %v", err)
		return
	}
	// The library has no other use for it in this process.
	specutils.ExePath = fmt.Sprintf("/proc/self/fd/%d", fd)
}

// programInMemory makes a file that can be executed and never changed.
func programInMemory(name string, program []byte) (_ int, err error) {
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
