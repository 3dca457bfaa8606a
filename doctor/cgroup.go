package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

var neededControllers = []string{"cpu", "memory", "pids"}

// checkCgroups looks for the controllers that limit a sandbox, and creates a group to test that
// it may.
func (h *Host) checkCgroups(context.Context) Result {
	version, roots, missing := h.controllers()
	if len(missing) > 0 {
		return fail(fmt.Sprintf("The cgroup controllers %s are missing, so sandboxes cannot be limited.", strings.Join(missing, ", ")),
			cgroupFix(version))
	}
	for _, root := range roots {
		if err := makeGroup(root); err != nil {
			return fail(fmt.Sprintf("A cgroup cannot be made in %s: %v.", root, err),
				"Run it as root. In a container, mount /sys/fs/cgroup writable.")
		}
	}
	return ok(fmt.Sprintf("cgroups v%d with %s, and groups can be made.", version, strings.Join(neededControllers, ", ")))
}

func cgroupFix(version int) string {
	if version == 2 {
		return "Enable them in cgroup.subtree_control of the root group; on some hosts memory needs cgroup_enable=memory on the kernel's command line."
	}
	return "Mount cgroups at /sys/fs/cgroup, as systemd does; in a container, mount them from the host."
}

// controllers finds the needed controllers: in one folder in version 2, and in
// one each in version 1.
func (h *Host) controllers() (version int, roots, missing []string) {
	if b, err := os.ReadFile(filepath.Join(h.cgroups, "cgroup.controllers")); err == nil {
		there := strings.Fields(string(b))
		for _, name := range neededControllers {
			if !slices.Contains(there, name) {
				missing = append(missing, name)
			}
		}
		return 2, []string{h.cgroups}, missing
	}
	for _, name := range neededControllers {
		root := filepath.Join(h.cgroups, name)
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			missing = append(missing, name)
			continue
		}
		roots = append(roots, root)
	}
	return 1, roots, missing
}

func makeGroup(root string) error {
	dir, err := os.MkdirTemp(root, "bothy-doctor-")
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	if err != nil {
		return err
	}
	return os.Remove(dir)
}
