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
	"github.com/bothy-dev/bothy/engine/memory"
	"github.com/bothy-dev/bothy/engine/microvm/vm"
)

const (
	// maxCPUs is how many processors every machine has. Those beyond its limits are offline.
	maxCPUs = 4
	// kernelMB is the memory of a machine's kernel and of everything else outside the sandbox. In
	// addition, the kernel takes one part in tablesOf of the most memory it may ever have: 64
	// bytes for each page of 4096, and tables.
	kernelMB = 112
	tablesOf = 56
	// growMB is how much a machine's memory may grow while it runs, at most, and it can about
	// double at most: its kernel takes its share of the maximum from the beginning.
	growMB = 1024
	// lastMB is the end of a machine's memory, where the initramfs and tables are. It is
	// not a whole block, so that no block is lost.
	lastMB = 16
	// hostTasks is how many threads QEMU may have.
	hostTasks = 256
)

// A machine is built with the memory that it can grow to, and its kernel takes the spare blocks
// offline before anything runs. What is left is what its first limits grant plus its own needs;
// a hole before the next whole block makes the sizes match. So the sandbox finds as much memory
// as it was given, and no balloon has to be filled while a machine boots.

// memorySizes is the memory layout of a machine that starts with given limits.
func memorySizes(l bothy.Limits) (ramMB, openMB, ownMB int) {
	blocks := max(1, min(l.MemoryMB, growMB)/vm.BlockMB)
	most := l.MemoryMB + kernelMB + (blocks+1)*vm.BlockMB
	ownMB = kernelMB + most/(tablesOf-1)
	openMB = l.MemoryMB + ownMB
	return upToBlock(openMB-lastMB) + blocks*vm.BlockMB + lastMB, openMB, ownMB
}

func upToBlock(mb int) int { return (mb + vm.BlockMB - 1) / vm.BlockMB * vm.BlockMB }

// hole is an address range without memory.
func (s class) hole() (fromMB, toMB int) { return s.OpenMB - lastMB, upToBlock(s.OpenMB - lastMB) }

// spareBlocks is the number of blocks that a machine can grow by.
func (s class) spareBlocks() int {
	_, first := s.hole()
	return (s.RAMMB - lastMB - first) / vm.BlockMB
}

// mostMB is the highest limit that a machine can have.
func (s class) mostMB() int { return s.OpenMB + s.spareBlocks()*vm.BlockMB - s.OwnMB }

// holds refuses limits that a machine cannot grow to.
func (s class) holds(l bothy.Limits) error {
	if most := s.mostMB(); l.MemoryMB > most {
		return bothy.Errorf(bothy.CodeUnsupported, "this machine's memory can grow to %d MB, not to %d MB", most, l.MemoryMB).
			WithHint("Ask for at most %d MB, or make a new sandbox with more memory_mb, for example from a snapshot of this one's files.", most)
	}
	return nil
}

// neededBlocks is how many of the spare blocks the limits need.
func (s class) neededBlocks(l bothy.Limits) int {
	return min(max(0, upToBlock(l.MemoryMB+s.OwnMB-s.OpenMB)/vm.BlockMB), s.spareBlocks())
}

// balloonBytes is how much of a machine's memory must stay out of the balloon, so that a kernel
// that uses so many spare blocks has what the limits grant.
func (s class) balloonBytes(l bothy.Limits, blocks int) int64 {
	excess := s.OpenMB + blocks*vm.BlockMB - (l.MemoryMB + s.OwnMB)
	return int64(s.RAMMB-max(0, excess)) << 20
}

func processors(l bothy.Limits) int { return min(max(1, int(math.Ceil(l.CPU))), maxCPUs) }

func processes(l bothy.Limits) int {
	if l.Processes == 0 {
		return bothy.MaxProcesses
	}
	return l.Processes
}

func (s class) innerLimits(l bothy.Limits) vm.Limits {
	return vm.Limits{MemoryBytes: l.MemoryBytes(), Processes: processes(l), CPUs: processors(l), Blocks: s.neededBlocks(l)}
}

// hostLimits are the limits of the cgroup. A machine may use all processors until its first
// SetLimits.
func (s class) hostLimits(l bothy.Limits, cpu float64) cgroup.Limits {
	return cgroup.Limits{CPU: cpu, MemoryBytes: memory.MicroVM(min(l.MemoryMB+s.OwnMB, s.RAMMB)), PIDs: hostTasks}
}

// checkSize refuses a machine that this host could never run.
func checkSize(l bothy.Limits) error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return err
	}
	if have := info.Totalram * uint64(info.Unit); uint64(l.MemoryBytes()) > have {
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
