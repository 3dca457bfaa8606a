package engine

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy/engine/cgroup"
)

// GroupPrefix begins the names of all servers' cgroups.
const GroupPrefix = "bothy-"

// An Orphan is a machine that still runs although its folder was deleted and no server holds it,
// so nothing will end it.
type Orphan struct {
	// Name is the machine's name, and Folder the folder that it had.
	Name, Folder string
	// PIDs are its processes.
	PIDs  []int
	group *cgroup.Group
}

// Orphans finds those of all servers that ever ran on this host. A machine is no orphan if its
// folder exists, or if a process holds it by a descriptor, as servers do.
func Orphans() ([]Orphan, error) {
	parents, err := cgroup.Parents(GroupPrefix)
	if err != nil {
		return nil, err
	}
	var found []Orphan
	for _, p := range parents {
		names, err := p.List()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			o := Orphan{Name: name, group: p.Open(name)}
			if o.PIDs, err = o.group.Processes(); err != nil {
				return nil, err
			}
			if o.Folder = deletedFolder(o.PIDs); o.Folder != "" {
				found = append(found, o)
			}
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	held, err := heldProcesses()
	if err != nil {
		return nil, err
	}
	orphans := found[:0]
	for _, o := range found {
		if !o.isHeld(held) {
			orphans = append(orphans, o)
		}
	}
	return orphans, nil
}

func (o Orphan) isHeld(held map[int]bool) bool {
	for _, pid := range o.PIDs {
		if held[pid] {
			return true
		}
	}
	return false
}

// End ends the machine, even a frozen one, which does not react to signals.
func (o Orphan) End() error {
	if err := o.group.SetFrozen(false); err != nil {
		return fmt.Errorf("thaw %s: %w", o.Name, err)
	}
	return errors.Join(o.group.End(), o.group.Remove())
}

// deletedFolder returns the folder of a machine's processes if it was deleted: the kernel marks
// its open files as such. A folder that is only invisible to this process does not count.
func deletedFolder(pids []int) string {
	for _, pid := range pids {
		proc := fmt.Sprintf("/proc/%d", pid)
		// A sentry writes its panics there.
		if log, err := os.Readlink(proc + "/fd/2"); err == nil {
			if path, ok := strings.CutSuffix(log, " (deleted)"); ok && filepath.Base(path) == "panic.log" {
				return filepath.Dir(path)
			}
		}
		// QEMU's pipes are mounted there.
		if path, ok := strings.CutSuffix(mountedAt(proc, "/m"), "//deleted"); ok {
			return filepath.Dir(path)
		}
	}
	return ""
}

// mountedAt returns which folder of its file system is mounted at a place in a process's root.
func mountedAt(proc, place string) string {
	f, err := os.Open(proc + "/mountinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if w := strings.Fields(s.Text()); len(w) > 4 && w[4] == place {
			return w[3]
		}
	}
	return ""
}

// heldProcesses returns the processes that some process on this host holds a descriptor of.
func heldProcesses() (map[int]bool, error) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	held := map[int]bool{}
	for _, p := range all {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		dir := "/proc/" + p.Name()
		fds, _ := os.ReadDir(dir + "/fd") // it may have ended
		for _, fd := range fds {
			if to, err := os.Readlink(dir + "/fd/" + fd.Name()); err != nil || !strings.Contains(to, "pidfd") {
				continue
			}
			info, _ := os.ReadFile(dir + "/fdinfo/" + fd.Name())
			for line := range strings.Lines(string(info)) {
				if pid, ok := strings.CutPrefix(line, "Pid:"); ok {
					n, _ := strconv.Atoi(strings.TrimSpace(pid))
					held[n] = true
				}
			}
		}
	}
	return held, nil
}
