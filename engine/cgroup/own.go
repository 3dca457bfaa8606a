package cgroup

import (
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy/engine/sysfile"
)

// OwnMemoryLimit returns the least of the limits on the memory of this process's group and those
// above it, as systemd and containers set them. If there is none, it is math.MaxInt64.
func OwnMemoryLimit() int64 {
	text, err := sysfile.Read("/proc/self/cgroup")
	if err != nil {
		return math.MaxInt64
	}
	mounted, err := mounts()
	if err != nil {
		return math.MaxInt64
	}
	return memoryLimit(text, mounted)
}

// memoryLimit finds the limits of the groups in a process's list, of which each line is
// ID:CONTROLLERS:PATH. A group that is not below the mount point is another namespace's.
func memoryLimit(list string, mounted map[string]string) int64 {
	least := int64(math.MaxInt64)
	for line := range strings.Lines(list) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) < 3 {
			continue
		}
		root, file := mounted[unified], "memory.max"
		if slices.Contains(strings.Split(part[1], ","), "memory") {
			root, file = mounted["memory"], "memory.limit_in_bytes"
		}
		for at := path.Clean("/" + part[2]); root != ""; at = path.Dir(at) {
			text, _ := sysfile.Read(filepath.Join(root, at, file))
			if n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64); err == nil {
				least = min(least, n)
			}
			if at == "/" {
				break
			}
		}
	}
	return least
}
