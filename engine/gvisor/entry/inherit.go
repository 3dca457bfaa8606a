package entry

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// donated returns the number of the descriptor that the server gives to the sentry by
// a flag, if it is such a one.
func donated(flag string) (fd string, ok bool) {
	name, fd, _ := strings.Cut(flag, "=")
	ok = strings.HasPrefix(name, "-") && (strings.HasSuffix(name, "-fd") || strings.HasSuffix(name, "-fds"))
	return fd, ok && fd != "-1"
}

// closeInherited closes the descriptors that the server gave by mistake. The
// library opens sockets that other programs inherit: the packet socket on one
// sandbox's network device and its control socket could come to the next sandbox's
// sentry, and where they lie in the way of the sentry's own, it cannot start.
func closeInherited(args []string) error {
	given := map[int]bool{0: true, 1: true, 2: true}
	for _, a := range args {
		if number, ok := donated(a); ok {
			fd, err := strconv.Atoi(number)
			if err != nil {
				return err
			}
			given[fd] = true
		}
	}
	// What this process itself has opened is closed on exec; what it inherited cannot be.
	closeUnlessGiven := func(fd int) {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && !given[fd] && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			closeUnlessGiven(fd)
		}
	}
	return nil
}
