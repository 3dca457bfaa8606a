package entry

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// donated returns the descriptor that the server passes to the sentry in a flag, if
// it is such a flag.
func donated(flag string) (fd string, ok bool) {
	name, fd, _ := strings.Cut(flag, "=")
	ok = strings.HasPrefix(name, "-") && (strings.HasSuffix(name, "-fd") || strings.HasSuffix(name, "-fds"))
	return fd, ok && fd != "-1"
}

// closeInherited closes descriptors that leaked from the server. The library opens sockets that
// other programs inherit: one sandbox's packet socket and control socket could end up in the
// next sandbox's sentry, which cannot start if their numbers collide with its own.
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
	// Descriptors that this process opened are close-on-exec; inherited ones are not.
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
