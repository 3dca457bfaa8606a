package gvisor

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// process is a sentry that is ours to end, child or not. The descriptor keeps
// it apart from any later process with the same id.
type process struct {
	pid     int
	started uint64 // in clock ticks since the host's boot
	fd      *os.File
}

func openProcess(pid int) (process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return process{}, fmt.Errorf("open process %d: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	started, err := startTime(pid)
	if err != nil {
		f.Close()
		return process{}, err
	}
	return process{pid: pid, started: started, fd: f}, nil
}

func (p process) close() error { return p.fd.Close() }

// wait returns when the process has ended, and reaps it if it is a child. It
// waits in Go's poller and holds no thread.
func (p process) wait() {
	rc, err := p.fd.SyscallConn()
	if err == nil {
		rc.Read(func(fd uintptr) bool {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, 0)
			return n > 0 || (err != nil && err != unix.EINTR)
		})
	}
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(p.pid, &ws, 0, nil); err != unix.EINTR {
			return
		}
	}
}

// kill ends the process. One that has ended already is no error.
func (p process) kill() error {
	rc, err := p.fd.SyscallConn()
	if err != nil {
		return nil // closed, so it has ended
	}
	var sent error
	if rc.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) }) != nil || sent == unix.ESRCH {
		return nil
	}
	return sent
}

// kill ends a sentry that has not become a machine.
func kill(pid int) {
	p, err := openProcess(pid)
	if err != nil {
		return
	}
	defer p.close()
	p.kill()
	p.wait()
}

// alive reports whether a process runs: one that has ended and was not reaped
// does not.
func alive(pid int) bool {
	p, err := openProcess(pid)
	return err == nil && p.is(p.started)
}

// is reports whether the process runs and is the one that was started then. It
// closes p.
func (p process) is(started uint64) bool {
	defer p.close()
	if p.started != started {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(p.fd.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 0
}

// startTime reads field 22 of /proc/PID/stat.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in field 2 may hold anything, but ends with the last bracket.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("short stat of process %d", pid)
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}
