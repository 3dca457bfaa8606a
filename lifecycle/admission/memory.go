package admission

import (
	"os"
	"strconv"
	"strings"
)

// FreeMemoryMB is the host's available memory.
func (c *Controller) FreeMemoryMB() int {
	if c.o.FreeMemoryMB != nil {
		return c.o.FreeMemoryMB()
	}
	return freeMemoryMB()
}

// freeForSandboxes is the available memory in MB, or a large number if there is no minimum.
func (c *Controller) freeForSandboxes() int {
	if c.o.MinFreeMemoryMB == 0 {
		return 1 << 30
	}
	return c.FreeMemoryMB()
}

// freeMemoryMB is the host's MemAvailable, or a large number if it cannot be read.
func freeMemoryMB() int {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 1 << 30
	}
	return availableMB(string(text))
}

func availableMB(meminfo string) int {
	_, rest, _ := strings.Cut(meminfo, "MemAvailable:")
	line, _, _ := strings.Cut(rest, "\n")
	kb, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(line, "kB")))
	if err != nil {
		return 1 << 30
	}
	return kb >> 10
}
