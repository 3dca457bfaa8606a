package entry

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// The server need not poll whether process 1 listens: the library writes a byte to a pipe when
// the sentry has started, and the next byte means that process 1 is reachable.

// caller is the write end of that pipe, or -1.
var caller = calls{fd: -1}

type calls struct {
	fd   int
	once sync.Once
	// restored is set when process 1 listens from the start.
	restored atomic.Bool
}

// keepCaller keeps the pipe, which the library would close.
func keepCaller(args []string) {
	for _, a := range args {
		number, ok := strings.CutPrefix(a, "--start-sync-fd=")
		if fd, err := strconv.Atoi(number); ok && err == nil {
			if caller.fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
				caller.fd = -1
			}
		}
	}
}

// notify reports once that process 1 is reachable. A server that gets no report polls instead.
func (c *calls) notify() {
	c.once.Do(func() {
		if c.fd >= 0 {
			_, _ = unix.Write(c.fd, []byte{0})
			_ = unix.Close(c.fd)
		}
	})
}

// notifyOnListen reports when process 1 listens.
func notifyOnListen(listen kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		n, control, err := listen(t, number, args)
		if err == nil && isProcessOne(t) {
			caller.notify()
		}
		return n, control, err
	}
}
