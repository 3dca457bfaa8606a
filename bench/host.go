package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Host describes where a measurement was made.
type Host struct {
	CPUs     int    `json:"cpus"`
	CPU      string `json:"cpu"`
	MemoryMB int    `json:"memory_mb"`
	Kernel   string `json:"kernel"`
	Load     string `json:"load"`
	// Programs are the versions of the measured programs.
	Programs map[string]string `json:"programs,omitempty"`
}

// ThisHost describes the host.
func ThisHost() Host {
	h := Host{CPUs: runtime.NumCPU(), CPU: field("/proc/cpuinfo", "model name"), Programs: map[string]string{}}
	fmt.Sscan(field("/proc/meminfo", "MemTotal"), &h.MemoryMB)
	h.MemoryMB >>= 10
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	b, _ := os.ReadFile("/proc/loadavg")
	h.Load = strings.TrimSpace(string(b))
	return h
}

// Load is the host's load average over the last minute.
func Load() float64 {
	b, _ := os.ReadFile("/proc/loadavg")
	var load float64
	fmt.Sscan(string(b), &load)
	return load
}

// AvailableMB is the memory that the host could give to programs.
func AvailableMB() float64 {
	var kb float64
	fmt.Sscan(field("/proc/meminfo", "MemAvailable"), &kb)
	return kb / 1024
}

// field returns the first value of a name in a file of "name: value" lines.
func field(path, name string) string {
	b, _ := os.ReadFile(path)
	for line := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
