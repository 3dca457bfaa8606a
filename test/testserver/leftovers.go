package testserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Leftovers reports what a sandbox, or with "" all of the server, has on the host:
// processes, cgroups, folders of machines and mounts. It returns nil if there is
// nothing.
func (s *Server) Leftovers(sandbox string) error {
	var errs []error
	for _, p := range s.Processes(sandbox) {
		errs = append(errs, fmt.Errorf("process %d is left: %s", p.PID, p.Command))
	}
	for _, dir := range s.Cgroups(sandbox) {
		errs = append(errs, fmt.Errorf("cgroup %s is left", dir))
	}
	for _, folder := range []string{"machines", "vms"} {
		machines, err := os.ReadDir(filepath.Join(s.Home, folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, m := range machines {
			kept := folder == "vms" && strings.HasPrefix(m.Name(), ".") // by the engine itself
			if !kept && strings.Contains(m.Name(), sandbox) {
				errs = append(errs, fmt.Errorf("folder %s is left in the folder %s", m.Name(), folder))
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	errs = append(errs, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, s.Dir) && strings.Contains(line, sandbox) {
			errs = append(errs, fmt.Errorf("mount is left: %s", line))
		}
	}
	return errors.Join(errs...)
}

// drafts reports what lies in the folder of the snapshots and is none.
func (s *Server) drafts() error {
	dir := filepath.Join(s.Home, "snapshots")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "snp") {
			if _, err := os.Stat(filepath.Join(dir, e.Name(), "manifest.json")); err != nil {
				errs = append(errs, fmt.Errorf("half a snapshot is left: %s", e.Name()))
			}
		} else if inside, err := os.ReadDir(filepath.Join(dir, e.Name())); err == nil && len(inside) > 0 {
			errs = append(errs, fmt.Errorf("%s is left in the folder of the snapshots", e.Name()))
		}
	}
	return errors.Join(errs...)
}

// Process is one on the host, with its command line.
type Process struct {
	PID     int
	Command string
}

// Processes finds those of a sandbox, or with "" of all, by the home and the id in
// their command lines, and by their cgroups.
func (s *Server) Processes(sandbox string) []Process {
	inCgroup := map[int]bool{}
	for _, dir := range s.Cgroups(sandbox) {
		b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, f := range strings.Fields(string(b)) {
			pid, _ := strconv.Atoi(f)
			inCgroup[pid] = true
		}
	}
	var found []Process
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		b, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		named := bytes.Contains(b, []byte(s.Home)) && bytes.Contains(b, []byte(sandbox))
		if pid != os.Getpid() && (named || inCgroup[pid]) {
			found = append(found, Process{pid, string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))})
		}
	}
	return found
}

// CgroupParent is the name that the server gives to the parent of its machines'
// cgroups.
func (s *Server) CgroupParent() string {
	sum := sha256.Sum256([]byte(s.Home))
	return "bothy-" + hex.EncodeToString(sum[:4])
}

// cgroupParents finds the parents, of which cgroup v1 has one for each controller.
func (s *Server) cgroupParents() []string {
	parents, _ := filepath.Glob("/sys/fs/cgroup/" + s.CgroupParent() + "*")
	v1, _ := filepath.Glob("/sys/fs/cgroup/*/" + s.CgroupParent() + "*")
	return append(parents, v1...)
}

// Cgroups finds the groups of a sandbox, or with "" of all.
func (s *Server) Cgroups(sandbox string) []string {
	var groups []string
	for _, parent := range s.cgroupParents() {
		entries, _ := os.ReadDir(parent)
		for _, e := range entries {
			if e.IsDir() && strings.Contains(e.Name(), sandbox) {
				groups = append(groups, filepath.Join(parent, e.Name()))
			}
		}
	}
	return groups
}

// Sweep ends the processes and removes the cgroups that a server which has ended
// left or keeps for its sandboxes, as a reboot of the host does.
func (s *Server) Sweep() error {
	for _, p := range s.Processes("") {
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
	}
	for _, dir := range s.Cgroups("") { // what is frozen does not end
		_ = os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0)
		_ = os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("0"), 0)
	}
	var errs []error
	for _, dir := range append(s.Cgroups(""), s.cgroupParents()...) {
		if err := removeCgroup(dir); err != nil {
			errs = append(errs, fmt.Errorf("sweep: %w", err))
		}
	}
	return errors.Join(errs...)
}

// removeCgroup removes a group whose processes are just ending.
func removeCgroup(dir string) error {
	deadline := time.Now().Add(Hangs)
	for {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
