package bothy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// EngineInfo says what an engine is and can do.
type EngineInfo struct {
	// Name is what requests call it: "gvisor", "microvm", "fake".
	Name string `json:"name"`
	// Build identifies the exact build. A memory snapshot can be restored only
	// by the build that made it, which a BuildKeeper keeps.
	Build string `json:"build"`
	// Kernel is the version that the sandbox's own kernel reports.
	Kernel string `json:"kernel"`
	// Snapshots is true when the engine can freeze memory and processes.
	Snapshots bool `json:"snapshots"`
	// Acceleration says what runs the processor of a virtual machine. It is empty
	// for an engine whose sandboxes run directly on the host's processor.
	Acceleration Acceleration `json:"acceleration,omitempty"`
	// Host is what restored memory may use of the processor; it is unknown where the
	// build says so already. Shown is what new sandboxes see of it, which is set by CPULevel.
	Host, Shown Processor `json:"-"`
	CPULevel    string    `json:"-"`
}

// EngineAuto stands in requests and settings for the engine that the operator's
// policy chooses.
const EngineAuto = "auto"

// Acceleration is what runs the processor of a virtual machine.
type Acceleration string

// A virtual machine is accelerated by the host's processor, or emulated by a
// program, which is the same and slow.
const (
	AccelerationKVM      Acceleration = "kvm"
	AccelerationEmulated Acceleration = "emulated"
)

// emulatedPatience is how many times longer an emulated machine may take.
const emulatedPatience = 5

// Patience is how long to wait for what takes an engine at full speed up to d.
func (i EngineInfo) Patience(d time.Duration) time.Duration {
	if i.Acceleration == AccelerationEmulated {
		return emulatedPatience * d
	}
	return d
}

// Limits are the resources of one machine. All of them are hard.
type Limits struct {
	CPU      float64
	MemoryMB int
	DiskMB   int
	// Processes bounds processes and threads inside.
	Processes int
}

// MemoryBytes is the memory that a sandbox's processes and files in memory may take up:
// every part that enforces or shows the limit asks here. What the host allows a machine
// beyond it is in package engine/memory.
func (l Limits) MemoryBytes() int64 { return int64(l.MemoryMB) << 20 }

// MachineSpec is what an engine needs to start a machine.
type MachineSpec struct {
	// ID is the sandbox's id, unique on this host.
	ID string
	// RootFS is the path of the template's EROFS image, and Guest that of the
	// image which holds the guest agent.
	RootFS string
	Guest  string
	// Hostname is the initial one; the guest changes it at adoption.
	Hostname string
	// Limits apply from the start, except CPU, which applies from the first
	// SetLimits on, so that it does not slow down the start.
	Limits Limits
	// FilesTar, if not empty, holds changes to the root file system that Start
	// applies before anything runs.
	FilesTar string
	// Build is the engine build that wrote the memory that Restore loads. Empty means
	// the engine's own build, which Start always uses.
	Build string
	// AllowConcurrent starts the machine while another with its ID still runs, which
	// the caller destroys next. An engine that cannot do that returns CodeConflict.
	AllowConcurrent bool
}

// SnapshotOptions say what of a machine is written where.
type SnapshotOptions struct {
	// MemoryDir, if not empty, is an empty folder that takes memory, processes
	// and files together, for Restore.
	MemoryDir string
	// FilesTar, if not empty, is a file to make, that takes the changes to the
	// root file system alone, as a tar with overlay whiteouts, for
	// MachineSpec.FilesTar.
	FilesTar string
	// Stop leaves the machine paused: the caller destroys it next, or thaws it.
	// Without it the machine runs on afterwards, also when the snapshot fails.
	Stop bool
	// OnPaused, if not nil, is called once the machine is paused, by an engine that
	// does something else first.
	OnPaused func()
	// Compact leaves out what need not be written. To find it may take longer than to
	// write it.
	Compact bool
}

// Exit says how a machine ended.
type Exit struct {
	Reason EndReason
	Detail string
}

// MachineStats is what a machine uses now.
type MachineStats struct {
	// CPUSeconds is the total since the machine started.
	CPUSeconds float64 `json:"cpu_seconds"`
	// MemoryBytes is the memory of the sandbox's processes and kernel, without
	// the page cache that the host can take back.
	MemoryBytes      int64 `json:"memory_bytes"`
	MemoryLimitBytes int64 `json:"memory_limit_bytes"`
	DiskBytes        int64 `json:"disk_bytes"`
	DiskLimitBytes   int64 `json:"disk_limit_bytes"`
	Processes        int   `json:"processes"`
}

// ErrMemoryUnusable is the cause of a restore's error where memory is as it was written and
// cannot be used on this host. The snapshot's files can.
var ErrMemoryUnusable = errors.New("the memory cannot be used on this host")

// An Engine gives sandboxes their own kernel.
//
// The life of a machine: Start boots one from a template, or Restore wakes one
// from a snapshot; in both cases the guest agent is process 1 and answers at
// GuestAddr:GuestPort over the machine's network device. The machine then lives until it
// is destroyed or ends by itself. It does not die with this process: State is
// stored, and after a restart Adopt finds it again. Sweep removes leftovers that belong
// to no machine.
//
// All methods may be called from many goroutines at once. When a method fails,
// it has undone what it did.
type Engine interface {
	Info() EngineInfo
	// Check starts nothing; its error has a hint that says what is missing on
	// this host.
	Check(ctx context.Context) error
	// Start boots a machine. It returns when the kernel runs and process 1 has
	// been started; the guest may need a few milliseconds more.
	Start(ctx context.Context, spec MachineSpec) (Machine, error)
	// Restore wakes a machine from the snapshot in dir, which Machine.Snapshot of
	// spec.Build wrote. The machine is of that build. It fails with CodeSnapshotDamaged,
	// or CodeUnsupported because of ErrMemoryUnusable (another build, see BuildKeeper, or
	// another kind of host), and leaves dir as it was.
	Restore(ctx context.Context, spec MachineSpec, dir string) (Machine, error)
	// Adopt finds a machine that is still alive, by its stored State. One that
	// was frozen continues. It returns CodeNotFound when the machine is gone, and only
	// then: whatever else fails may be tried again.
	Adopt(ctx context.Context, id string, state []byte) (Machine, error)
	// Sweep removes processes, namespaces, mounts, cgroups and folders of
	// machines that this engine does not hold (it started or adopted them and
	// they live) and for which keep is false, and returns their names: see
	// MachineNamer.
	Sweep(ctx context.Context, keep func(name string) bool) ([]string, error)
}

// A BuildKeeper is an engine that also wakes memory which other builds of it wrote, with
// those builds, which it has kept.
type BuildKeeper interface {
	// HoldBuild checks that memory of a build can be woken, and keeps the build until
	// release is called. The error has CodeUnsupported, and as its detail the reason, as
	// a clause about the build: "which this server has not kept".
	HoldBuild(build string) (release func(), err error)
}

// A MachineNamer is an engine whose machines need not be called like their
// sandboxes, so that two of one sandbox can be told apart.
type MachineNamer interface {
	// MachineName is the name of the machine that has a State.
	MachineName(id string, state []byte) string
}

// A Preparer is an engine that can do the first part of a start ahead of demand.
// The result is a spare, which runs nothing yet. The next Start or Restore of its
// kind takes it, and is only faster for it. Spares belong to no sandbox: Sweep of
// the next engine removes them if KeepSpares did not end them.
type Preparer interface {
	// Prepare makes a spare of spec's kind.
	Prepare(ctx context.Context, spec MachineSpec) error
	// Spares tells how many there are of each kind.
	Spares() []Spare
	// KeepSpares ends all but n spares of each kind.
	KeepSpares(ctx context.Context, keep []Spare) error
}

// An Announcer is a Machine that tells when its guest can be asked.
type Announcer interface {
	// Announced returns when the guest listens, or when it is not known. A request before
	// that fails.
	Announced(ctx context.Context)
}

// A CPUMeter is a Machine that can return its CPU time alone, because Stats takes
// longer. It is called often: to meter usage, and whenever a sandbox is handed out.
type CPUMeter interface {
	// CPUSeconds is the CPU time used so far, in seconds.
	CPUSeconds() (float64, error)
}

// Spare counts the spares of one kind.
type Spare struct {
	Kind  MachineSpec
	Count int
}

// Kind is what of a spec a spare is bound to; two specs are of one kind when
// their kinds are equal. A spec with FilesTar is of no spare's kind.
func (s MachineSpec) Kind() MachineSpec {
	k := MachineSpec{RootFS: s.RootFS, Guest: s.Guest, Limits: s.Limits, FilesTar: s.FilesTar}
	k.Limits.CPU = math.Ceil(s.Limits.CPU)
	return k
}

// A Machine is one sandbox as the engine sees it.
type Machine interface {
	ID() string
	// State is what Adopt needs, as opaque bytes.
	State() []byte
	// Build is that of the engine which started the machine, and so of the
	// snapshots of its memory. It differs from the Engine's after an upgrade.
	Build() string
	// NetDevice opens the host's end of the machine's network device. There is one network device:
	// the caller closes it before it asks again.
	NetDevice(ctx context.Context) (NetDevice, error)
	// Done is closed when the machine has ended, for whatever reason. After
	// that Exit tells how.
	Done() <-chan struct{}
	Exit() Exit
	Stats(ctx context.Context) (MachineStats, error)
	// SetLimits changes CPU, memory and processes of a live machine.
	SetLimits(ctx context.Context, l Limits) error
	// WatchMemory calls fn with the bytes in use when they come close to the
	// limit, again while they stay there, at most every few milliseconds, and
	// once when they no longer do. It returns when the machine ends or ctx does.
	WatchMemory(ctx context.Context, fn func(used, limit int64)) error
	// Freeze stops every process inside at once. Thaw lets them continue, also
	// after a Snapshot with Stop, and after Adopt of a machine whose guest does
	// not answer because a server was killed in the middle of one.
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	// Snapshot writes the machine as it is at one moment; see SnapshotOptions.
	Snapshot(ctx context.Context, o SnapshotOptions) error
	// Destroy ends the machine and frees all that it held. Destroying twice is
	// not an error. Until it returns, another machine of this ID can be started or
	// not: then that is a conflict.
	Destroy(ctx context.Context) error
}

// Clock tells the time. Tests bring their own.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in its own goroutine after d, unless stopped.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// The levels of the x86-64 psABI, each of which has all instructions of those before it.
const (
	// CPUHost stands in settings for all that the host's processor can do.
	CPUHost   = "host"
	CPULevel1 = "x86-64-v1"
	CPULevel2 = "x86-64-v2"
	CPULevel3 = "x86-64-v3"
	CPULevel4 = "x86-64-v4"
)

// Processor is what programs may use of a processor.
type Processor struct {
	// Vendor is as the processor says it: AuthenticAMD, GenuineIntel.
	Vendor string `json:"vendor"`
	// Level is the highest whose instructions it has: x86-64-v1 to x86-64-v4.
	Level string `json:"level"`
	// CacheLine is in bytes.
	CacheLine int `json:"cache_line"`
	// Hides says that the host can hide features from programs that ask the processor itself.
	Hides bool `json:"hides"`
	// Features are in the words of /proc/cpuinfo, in order.
	Features []string `json:"features"`
}

// cpuLevels are the features of each level that the one before it has not.
var cpuLevels = []struct {
	name        string
	needs, also []string
}{
	// What is in also came about with other levels, and every server's processor of this one has
	// it nevertheless.
	{CPULevel1, []string{"cmov", "cx8", "fpu", "fxsr", "mmx", "sse", "sse2", "syscall"},
		[]string{"aes", "apic", "clflush", "de", "ht", "lm", "mca", "mce", "msr", "mtrr", "nx", "osxsave", "pae", "pat", "pclmulqdq", "pge", "pse", "pse36", "rdtscp", "sep", "tsc", "vme", "xsave"}},
	{CPULevel2, []string{"cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"}, nil},
	{CPULevel3, []string{"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "osxsave", "xsave"}, []string{"fsgsbase", "rdrand", "xsaveopt"}},
	{CPULevel4, []string{"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}, []string{"adx", "rdseed", "xgetbv1", "xsavec"}},
}

// CPULevelOf is the highest level whose features are all there, or empty for none.
func CPULevelOf(features []string) (level string) {
	for _, l := range cpuLevels {
		for _, f := range l.needs {
			if !slices.Contains(features, f) {
				return level
			}
		}
		level = l.name
	}
	return level
}

// CPUFeatures are the features that sandboxes of a level may have: all that are there of them
// on a host are shown.
func CPUFeatures(level string) (features []string) {
	for _, l := range cpuLevels {
		features = append(append(features, l.needs...), l.also...)
		if l.name == level {
			break
		}
	}
	slices.Sort(features)
	return slices.Compact(features)
}

// Known reports whether anything is known of the processor.
func (p Processor) Known() bool { return len(p.Features) > 0 }

// AtLeast reports whether it has all instructions of a level.
func (p Processor) AtLeast(level string) bool { return p.Level != "" && p.Level >= level }

// Shown is what sandboxes see of it at a level, which it has: CPUHost, or one of the others.
func (p Processor) Shown(level string) Processor {
	if level == "" || level == CPUHost || !p.Known() {
		return p
	}
	allowed := CPUFeatures(level)
	p.Features = slices.DeleteFunc(slices.Clone(p.Features), func(f string) bool { return !slices.Contains(allowed, f) })
	p.Level = CPULevelOf(p.Features)
	return p
}

// Lacks are the features of another that it has not.
func (p Processor) Lacks(other Processor) (features []string) {
	for _, f := range other.Features {
		if _, has := slices.BinarySearch(p.Features, f); !has {
			features = append(features, f)
		}
	}
	return features
}

// Wakes reports whether memory of programs that may use what another processor has can be woken
// on this one. Where too little is known it may be tried.
func (p Processor) Wakes(of *Processor) bool {
	if of == nil || !of.Known() || !p.Known() {
		return true
	}
	return len(p.Lacks(*of)) == 0 && p.CacheLine == of.CacheLine
}

// String names it for people.
func (p Processor) String() string {
	if p.Level == "" {
		return "an unknown processor"
	}
	return p.Vendor + " " + p.Level
}

// FeatureList names some features, and counts the others.
func FeatureList(features []string) string {
	const most = 6
	if len(features) <= most {
		return strings.Join(features, ", ")
	}
	return fmt.Sprintf("%s and %d more features", strings.Join(features[:most], ", "), len(features)-most)
}
