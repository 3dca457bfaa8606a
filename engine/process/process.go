// Package process holds processes that outlive the server which started them: by a
// descriptor, so that none is taken for a later one with its number. Engines use it.
package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/engine/kernelfile"
)

// Process is one that is ours to end, child or not.
type Process struct {
	PID     int
	Started uint64 // in clock ticks since the host's boot
	fd      *os.File
}

// Open finds the process that has a number now.
func Open(pid int) (Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return Process{}, fmt.Errorf("open process %d: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	started, err := startTime(pid)
	if err != nil {
		f.Close()
		return Process{}, err
	}
	return Process{PID: pid, Started: started, fd: f}, nil
}

// Close gives the descriptor back; the process goes on.
func (p Process) Close() error { return p.fd.Close() }

// Wait returns when the process has ended, and reaps it and says how it ended if it is
// a child. It waits in Go's poller and holds no thread.
func (p Process) Wait() (status unix.WaitStatus) {
	rc, err := p.fd.SyscallConn()
	if err == nil {
		rc.Read(func(fd uintptr) bool {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, 0)
			return n > 0 || (err != nil && err != unix.EINTR)
		})
	}
	for {
		if _, err := unix.Wait4(p.PID, &status, 0, nil); err != unix.EINTR {
			return status
		}
	}
}

// Kill ends the process. One that has ended already is no error.
func (p Process) Kill() error {
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

// End kills whatever has that number now, and waits for its end, as Wait does.
func End(pid int) (status unix.WaitStatus) {
	p, err := Open(pid)
	if err != nil {
		return 0
	}
	defer p.Close()
	p.Kill()
	return p.Wait()
}

// Alive reports whether a process runs: one that has ended and was not reaped
// does not.
func Alive(pid int) bool {
	p, err := Open(pid)
	return err == nil && p.Is(p.Started)
}

// Is reports whether the process runs and is the one that was started then. It
// closes p.
func (p Process) Is(started uint64) bool {
	defer p.Close()
	return p.Started == started && p.Runs()
}

// Runs reports whether the process has not ended.
func (p Process) Runs() bool {
	fds := []unix.PollFd{{Fd: int32(p.fd.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 0
}

// startTime reads field 22 of /proc/PID/stat.
func startTime(pid int) (uint64, error) {
	stat, err := kernelfile.Read(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in field 2 may hold anything, but ends with the last bracket.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("short stat of process %d", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}
