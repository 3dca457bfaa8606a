package gvisor

import (
	"errors"
	"math"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/cgroup"
)

const (
	// headroomBytes is the memory that the sentry may use beside the sandbox's
	// own: at the limit the guest kills the largest process, and only above
	// the headroom does the host's kernel kill the machine.
	headroomBytes = 128 << 20
	// processBytes is what one of the sandbox's processes costs the host's
	// kernel: page tables and stacks, which nobody inside can see.
	processBytes = 160 << 10
	// hostTasks bounds the threads and processes of one sentry on the host. A
	// sandbox's process costs a few of them.
	hostTasks = 16384
)

func cgroupLimits(l bothy.Limits) cgroup.Limits {
	ceiling := memoryLimit(l) + headroomBytes + int64(l.Processes)*processBytes
	return cgroup.Limits{CPU: l.CPU, MemoryBytes: ceiling, PIDs: hostTasks}
}

func memoryLimit(l bothy.Limits) int64 { return int64(l.MemoryMB) << 20 }

// view tells the library which CPUs and memory to show inside. The limits
// themselves are set by package cgroup, not by the library.
type view struct{ limits bothy.Limits }

var errNotOurs = errors.New("cgroups are set by the engine, not by the library")

func (view) Install(*specs.LinuxResources) error { return errNotOurs }
func (view) Update(*specs.LinuxResources) error  { return errNotOurs }
func (view) Uninstall() error                    { return nil }
func (view) Join() (func(), error)               { return nil, errNotOurs }
func (view) CloneIntoCgroup() (*os.File, error)  { return nil, errNotOurs }
func (view) CPUUsage() (uint64, error)           { return 0, errNotOurs }
func (view) MakePath(string) string              { return "" }
func (v view) CPUPeriod() (int64, error)         { return 100_000, nil }
func (v view) CPUQuota() (int64, error)          { return int64(v.limits.CPU * 100_000), nil }
func (v view) NumCPU() (int, error)              { return max(1, int(math.Ceil(v.limits.CPU))), nil }
func (v view) MemoryLimit() (uint64, error)      { return uint64(memoryLimit(v.limits)), nil }
