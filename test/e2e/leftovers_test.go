package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// leftovers reports what a server that has ended, and its sandboxes, left on the
// host: processes, cgroups, folders and mounts.
func (s *server) leftovers() error {
	var errs []error
	for _, p := range s.processes() {
		errs = append(errs, fmt.Errorf("process %d is left: %s", p.pid, p.command))
	}
	for _, dir := range s.cgroups() {
		errs = append(errs, fmt.Errorf("cgroup %s is left", dir))
	}
	for _, folder := range []string{"machines", "vms"} {
		machines, err := os.ReadDir(filepath.Join(s.home, folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, m := range machines {
			if !strings.HasPrefix(m.Name(), ".") { // what the engine itself keeps
				errs = append(errs, fmt.Errorf("folder %s is left in the folder %s", m.Name(), folder))
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	errs = append(errs, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, s.dir) {
			errs = append(errs, fmt.Errorf("mount is left: %s", line))
		}
	}
	return errors.Join(errs...)
}

type hostProcess struct {
	pid     int
	command string
}

// processes finds those of this server by its home in their command lines, and
// those in its sandboxes' cgroups.
func (s *server) processes() []hostProcess {
	inCgroup := map[int]bool{}
	for _, dir := range s.cgroups() {
		b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, f := range strings.Fields(string(b)) {
			pid, _ := strconv.Atoi(f)
			inCgroup[pid] = true
		}
	}
	var found []hostProcess
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		b, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if pid != os.Getpid() && (inCgroup[pid] || bytes.Contains(b, []byte(s.home))) {
			found = append(found, hostProcess{pid, string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))})
		}
	}
	return found
}

// cgroups finds the groups of this server's machines, which lie below a parent
// that is named after the home.
func (s *server) cgroups() []string {
	var groups []string
	for _, parent := range s.cgroupParents() {
		entries, _ := os.ReadDir(parent)
		for _, e := range entries {
			if e.IsDir() {
				groups = append(groups, filepath.Join(parent, e.Name()))
			}
		}
	}
	return groups
}

func (s *server) cgroupParents() []string {
	name := cgroupParent(s.home)
	parents, _ := filepath.Glob("/sys/fs/cgroup/" + name + "*")
	v1, _ := filepath.Glob("/sys/fs/cgroup/*/" + name + "*")
	return append(parents, v1...)
}

// sweep removes what leftovers reports, so that a failed run does not disturb
// the next, and the parents of the cgroups, which a server keeps for its
// sandboxes.
func (s *server) sweep() error {
	for _, p := range s.processes() {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	var errs []error
	for _, dir := range append(s.cgroups(), s.cgroupParents()...) {
		if err := removeCgroup(dir); err != nil {
			errs = append(errs, fmt.Errorf("sweep: %w", err))
		}
	}
	return errors.Join(errs...)
}
