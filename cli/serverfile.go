//go:build linux && !clientonly

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/internal/wholefile"
)

// serverFile says which process is the server of a home. A pid alone would not suffice: after
// the server's end another process may get it.
type serverFile struct {
	PID    int    `json:"pid"`
	Start  string `json:"start"`
	Exe    string `json:"exe"`
	Listen string `json:"listen"`
	// Credentials is the file with a key of this server, if there is one.
	Credentials string `json:"credentials,omitempty"`
	// Certificate is the file with its certificate, if it has one.
	Certificate string `json:"certificate,omitempty"`
}

// serverFileName is the file's name in a home.
const serverFileName = "server.json"

func serverFilePath() string { return filepath.Join(home(), serverFileName) }

func (f *serverFile) url() string { return "http://" + dialAddress(f.Listen) }

// describeServer makes the file's content for a process of ours.
func describeServer(pid int, listen string) (*serverFile, error) {
	start, err := startTime(pid)
	if err != nil {
		return nil, err
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return nil, err
	}
	return &serverFile{PID: pid, Start: start, Exe: exe, Listen: listen}, nil
}

// saveTo writes the file: `up` and the server that it started both do this.
func (f *serverFile) saveTo(path string) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return wholefile.Write(path, append(b, '\n'), 0o644)
}

// runningServer returns the live server of this home, or nil.
func runningServer() (*serverFile, error) {
	b, err := os.ReadFile(serverFilePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f serverFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", serverFilePath(), err)
	}
	if !f.alive() {
		return nil, nil
	}
	return &f, nil
}

// alive reports whether the process is still the one that was started. Its binary may have been
// replaced meanwhile.
func (f *serverFile) alive() bool {
	start, err := startTime(f.PID)
	if err != nil || start != f.Start {
		return false
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", f.PID))
	return err == nil && strings.TrimSuffix(exe, " (deleted)") == strings.TrimSuffix(f.Exe, " (deleted)")
}

// log is the file that the process writes its log to, or "" if that is not a file but the
// terminal or a service's journal.
func (f *serverFile) log() string {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/2", f.PID))
	if err != nil {
		return ""
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return path
}

// startTime is the time since boot at which a live process started, in ticks: the 22nd field of
// its stat line. The second, its name, may contain anything.
func startTime(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	rest := string(b[strings.LastIndexByte(string(b), ')')+1:])
	fields := strings.Fields(rest)
	if len(fields) < 20 || fields[0] == "Z" {
		return "", errors.New("the process has ended")
	}
	return fields[19], nil
}

var errStillRunning = errors.New("it has not ended")

// stop asks the process to end and waits for it. The descriptor of the process ensures that no
// other process gets the signal.
func (f *serverFile) stop(timeout time.Duration) error {
	fd, err := unix.PidfdOpen(f.PID, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !f.alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, syscall.SIGTERM, nil, 0); err != nil && err != unix.ESRCH {
		return err
	}
	return waitProcess(fd, timeout)
}

// waitProcess waits until a process has ended, which makes its descriptor readable.
func waitProcess(fd int, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		left := max(time.Until(deadline).Milliseconds(), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return errStillRunning
		}
		return nil
	}
}
