package lab

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// clockTicks is the kernel's number of ticks per second of a process's time.
const clockTicks = 100

// CPUSeconds is the processor time used by the server and all its sandboxes, one of which is
// named.
func (s *Server) CPUSeconds(sandbox string) (float64, error) {
	own, err := cpuSeconds(s.PID)
	if err != nil {
		return 0, err
	}
	all, err := s.SandboxSeconds(sandbox)
	return own + all, err
}

// SandboxSeconds is the processor time used by all its sandboxes.
func (s *Server) SandboxSeconds(sandbox string) (float64, error) {
	group, err := s.Group(sandbox)
	if err != nil {
		return 0, err
	}
	// Not from the processes: each rounds its time down to a tick.
	parent := filepath.Base(filepath.Dir(group))
	if b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuacct", parent, "cpuacct.usage")); err == nil {
		ns, err := strconv.ParseFloat(strings.TrimSpace(string(b)), 64)
		return ns / 1e9, err
	}
	b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", parent, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	var us float64
	_, err = fmt.Sscanf(string(b), "usage_usec %g", &us)
	return us / 1e6, err
}

// cpuSeconds reads the 14th and 15th field of a process's stat line. The second, its name, may
// contain anything.
func cpuSeconds(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat is %q", pid, b)
	}
	var user, system float64
	_, err = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	return (user + system) / clockTicks, err
}

// processes are those of all sandboxes: all that were started from a file below the server's
// home, where it keeps its sentries.
func (s *Server) processes() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range all {
		if exe, err := os.Readlink(link); err == nil && strings.HasPrefix(exe, s.Home+"/") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// Holdings counts what a server could leak: its descriptors and threads, and what exists on the
// host because of it.
func (s *Server) Holdings() (map[string]int, error) {
	proc := fmt.Sprintf("/proc/%d", s.PID)
	descriptors, err := os.ReadDir(proc + "/fd")
	if err != nil {
		return nil, err
	}
	threads, err := os.ReadDir(proc + "/task")
	if err != nil {
		return nil, err
	}
	machines, err := os.ReadDir(filepath.Join(s.Home, "machines"))
	if err != nil {
		return nil, err
	}
	return map[string]int{
		"descriptors": len(descriptors), "threads": len(threads), "folders": len(machines), "files": s.files(),
		"processes": len(s.processes()), "cgroups": s.groups(), "namespaces": s.namespaces(),
	}, nil
}

// files counts those below the server's home.
func (s *Server) files() (n int) {
	_ = filepath.WalkDir(s.Home, func(_ string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			n++
		}
		return nil
	})
	return n
}

// groups counts the cgroups of the server's sandboxes, which are named after its home.
func (s *Server) groups() (n int) {
	sum := sha256.Sum256([]byte(s.Home))
	own := "bothy-" + hex.EncodeToString(sum[:4]) + "/*/cgroup.procs"
	for _, pattern := range []string{"/sys/fs/cgroup/" + own, "/sys/fs/cgroup/*/" + own} {
		found, _ := filepath.Glob(pattern)
		n += len(found)
	}
	return n
}

// namespaces counts those that the server and its sandboxes' processes are in.
func (s *Server) namespaces() int {
	seen := map[string]bool{}
	for _, pid := range append(s.processes(), s.PID) {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/ns/*", pid))
		for _, link := range links {
			if to, err := os.Readlink(link); err == nil {
				seen[to] = true
			}
		}
	}
	return len(seen)
}
