package microvm

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/cgroup"
	"github.com/bothy-dev/bothy/engine/microvm/vm"
)

const (
	// maxCPUs is how many processors every machine has. Those that its limits do not
	// grant stand still.
	maxCPUs = 4
	// kernelMB is the memory of a machine's kernel and of what is there beside the
	// sandbox.
	kernelMB = 96
	// growMB is how much a machine's memory may grow while it runs, at most: a kernel
	// spends some memory on each page that it may get.
	growMB = 1024
	// headroomBytes is what QEMU may use on the host beside the machine's memory, and
	// hostTasks how many threads.
	headroomBytes = 384 << 20
	hostTasks     = 256
)

// ramMB is the memory that a machine is built with.
func ramMB(l bothy.Limits) int { return l.MemoryMB + min(l.MemoryMB, growMB) + kernelMB }

func memoryBytes(l bothy.Limits) int64 { return int64(l.MemoryMB) << 20 }

func processors(l bothy.Limits) int { return min(max(1, int(math.Ceil(l.CPU))), maxCPUs) }

func processes(l bothy.Limits) int {
	if l.Processes == 0 {
		return bothy.MaxProcesses
	}
	return l.Processes
}

func innerLimits(l bothy.Limits) vm.Limits {
	return vm.Limits{MemoryBytes: memoryBytes(l), Processes: processes(l), CPUs: processors(l)}
}

// hostLimits are those of the cgroup. A machine has all the CPU there is until its
// first SetLimits.
func hostLimits(l bothy.Limits, ramMB int, cpu float64) cgroup.Limits {
	return cgroup.Limits{CPU: cpu, MemoryBytes: min(memoryBytes(l)+kernelMB<<20, int64(ramMB)<<20) + headroomBytes, PIDs: hostTasks}
}

// checkSize refuses a machine that this host could never hold.
func checkSize(l bothy.Limits) error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return err
	}
	if have := info.Totalram * uint64(info.Unit); uint64(memoryBytes(l)) > have {
		return bothy.Errorf(bothy.CodeCapacity, "a machine with %d MB of memory does not fit this host, which has %d MB", l.MemoryMB, have>>20).
			WithHint("Ask for less memory_mb.")
	}
	return nil
}

// processorModel names what a snapshot under KVM depends on.
func processorModel() (string, error) {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() && s.Text() != "" {
		k, v, _ := strings.Cut(s.Text(), ":")
		switch strings.TrimSpace(k) {
		case "model name", "stepping", "flags":
			fmt.Fprintln(h, v)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), s.Err()
}
