package entry

import (
	"fmt"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/bothy-dev/bothy/engine/gvisor/tiny"
)

// presetUmounter gives the library a small program to unmount /proc with, when the
// sentry itself may no longer. Otherwise it is this whole program once more, whose
// start is a fifteenth of the work of a sandbox's. Where that cannot be done the
// library does as always.
func presetUmounter() {
	program := tiny.Umount()
	if program == nil || !confined() {
		return
	}
	fd, err := tiny.File("umount", program)
	if err != nil {
		log.Warningf("Unmounting /proc with all of this program: %v", err)
		return
	}
	// In a child, the numbers behind its files become those of others.
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, umounterFD)
	unix.Close(fd)
	if err != nil {
		log.Warningf("Unmounting /proc with all of this program: %v", err)
		return
	}
	// The library has no other use for it in this process.
	specutils.ExePath = fmt.Sprintf("/proc/self/fd/%d", high)
}

// umounterFD is above all descriptors of a sentry that starts.
const umounterFD = 240

// confined reports whether another such program has started this one: they may be
// forbidden on this host.
func confined() bool {
	has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SETPCAP, 0, 0, 0)
	return err == nil && has == 0
}
