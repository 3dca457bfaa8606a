// Package process holds processes that outlive the server which started them: by a
// descriptor, so that none is taken for a later one with its number. Engines use it.
package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/engine/sysfile"
)

// Process is a process that we may kill, child or not.
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

// Gone reports whether an error of Open means that there is no such process.
func Gone(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist)
}

// Close releases the descriptor; the process continues.
func (p Process) Close() error { return p.fd.Close() }

// Wait returns when the process has ended, and reaps it if it is a child. It waits in Go's
// poller and blocks no thread.
func (p Process) Wait() { p.wait() }

// WaitStatus is Wait, and also returns the exit status if it is known: for a process that is not
// a child, only newer kernels report it.
func (p Process) WaitStatus() (status unix.WaitStatus, known bool) {
	if status, known = p.wait(); !known {
		status, known = p.exitStatus()
	}
	return status, known
}

// wait also returns how a child ended.
func (p Process) wait() (status unix.WaitStatus, known bool) {
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
			return status, err == nil
		}
	}
}

const (
	// reapAgain is how long to wait before checking again whether another process has reaped
	// this one, and reapTries how often to check.
	reapAgain = 5 * time.Millisecond
	reapTries = 20
)

// exitStatus returns the exit status of a process that another process reaps: from /proc before
// that, and from the descriptor afterwards, with newer kernels.
func (p Process) exitStatus() (unix.WaitStatus, bool) {
	for range reapTries {
		if status, known := p.zombieStatus(); known {
			return status, true
		}
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		rc, err := p.fd.SyscallConn()
		if err != nil {
			return 0, false
		}
		var asked error
		if err := rc.Control(func(fd uintptr) { asked = unix.IoctlPidfdInfo(int(fd), &info) }); err != nil {
			return 0, false
		}
		if asked == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
			return unix.WaitStatus(info.Exit_code), true
		}
		if asked != nil && asked != unix.ESRCH {
			return 0, false // the kernel does not support it
		}
		time.Sleep(reapAgain)
	}
	return 0, false
}

// zombieStatus returns how a process ended that has not been reaped.
func (p Process) zombieStatus() (unix.WaitStatus, bool) {
	fields, err := stat(p.PID)
	const state, started, exitCode = 0, 19, 49
	if err != nil || len(fields) <= exitCode || fields[state] != "Z" || fields[started] != strconv.FormatUint(p.Started, 10) {
		return 0, false
	}
	code, err := strconv.Atoi(fields[exitCode])
	return unix.WaitStatus(code), err == nil
}

// Ended describes how a process ended unexpectedly, as the end of a sentence.
func Ended(status unix.WaitStatus, known bool) string {
	switch {
	case !known:
		return "ended, and the host does not say how"
	case status.Signaled():
		return fmt.Sprintf("was killed from outside by signal %d (%s)", int(status.Signal()), unix.SignalName(status.Signal()))
	}
	return fmt.Sprintf("ended with exit status %d", status.ExitStatus())
}

// Kill ends the process. One that has ended already is not an error.
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

// End kills the process that has that number now, waits for its end, and describes how a child
// ended.
func End(pid int) (status unix.WaitStatus) {
	p, err := Open(pid)
	if err != nil {
		return 0
	}
	defer p.Close()
	p.Kill()
	status, _ = p.wait()
	return status
}

// Alive reports whether a process is running; a zombie is not.
func Alive(pid int) bool {
	p, err := Open(pid)
	return err == nil && p.Is(p.Started)
}

// Is reports whether the process is running and was started at that time. It closes p.
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

// startTime returns when a process was started.
func startTime(pid int) (uint64, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	if len(fields) < 20 {
		return 0, fmt.Errorf("short stat of process %d", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// stat reads the fields of /proc/PID/stat from the third, the state, on.
func stat(pid int) ([]string, error) {
	text, err := sysfile.Read(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	// The name in field 2 may hold anything, but ends with the last bracket.
	return strings.Fields(text[strings.LastIndexByte(text, ')')+1:]), nil
}
