package driver

import (
	"fmt"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
	"github.com/bothy-dev/bothy/guest/abi"
)

// guestMount is where the guest's image is mounted, and guestPath the agent.
const (
	guestMount = "/.bothy"
	guestPath  = "/.bothy/guest"
)

// rootImage and guestImage are placeholders for the images, which the sentry gets as
// descriptors. A checkpoint can only be restored with its original names, and an image may have
// moved by then.
const (
	rootImage  = "/root.erofs"
	guestImage = "/guest.erofs"
)

// commandCaps are what root's commands may do inside their own kernel, and guestCaps what
// process 1 may do. Without the latter, the guest would have to drop the difference itself,
// which takes much longer.
var (
	commandCaps = []string{
		"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
		"CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
	}
	guestCaps = append([]string{
		"CAP_DAC_READ_SEARCH", "CAP_SYS_ADMIN", "CAP_SYS_NICE", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE",
	}, commandCaps...)
)

// guestEnv is the environment of process 1 alone; this engine's kernel guards it.
func guestEnv(off tuning.Off) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		abi.EnvSpared + "=1", abi.EnvBound + "=1",
	}
	if !off[tuning.GuestEnv] {
		// One processor, no garbage collection during the start and no preemption save it system
		// calls, which are expensive inside.
		env = append(env, "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1,containermaxprocs=0,updatemaxprocs=0,multipathtcp=0,decoratemappings=0")
	}
	return env
}

// ociSpec describes the machine to the library.
func ociSpec(s Launch, emptyRoot string) *specs.Spec {
	processes := uint64(s.Limits.Processes)
	if processes == 0 {
		processes = bothy.MaxProcesses
	}
	spec := &specs.Spec{
		Version:  "1.0.0",
		Hostname: s.Hostname,
		Process: &specs.Process{
			Args: []string{guestPath},
			Env:  guestEnv(s.Off),
			Cwd:  "/",
			Capabilities: &specs.LinuxCapabilities{
				// Inheritable capabilities survive the bounding set. The guest drops them before
				// it starts any command.
				Bounding: commandCaps, Inheritable: guestCaps, Effective: guestCaps, Permitted: guestCaps,
			},
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NPROC", Hard: processes, Soft: processes},
				// Commands start with the soft limit, as on any Linux: some programs close every
				// file that they might have open, one by one.
				{Type: "RLIMIT_NOFILE", Hard: 1 << 20, Soft: 1024},
				{Type: "RLIMIT_CORE", Hard: 0, Soft: 0},
				{Type: "RLIMIT_MEMLOCK", Hard: 8 << 20, Soft: 8 << 20},
				{Type: "RLIMIT_SIGPENDING", Hard: processes, Soft: processes},
			},
		},
		Root: &specs.Root{Path: emptyRoot},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro", "nosuid", "noexec", "nodev"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: share(s.Limits, 2, "mode=1777", "nosuid", "nodev")},
			{Destination: "/run", Type: "tmpfs", Source: "run", Options: share(s.Limits, 8, "mode=755", "nosuid", "nodev")},
			{Destination: guestMount, Type: "erofs", Source: guestImage, Options: []string{"ro"}},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace},
				{Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
			},
		},
		Annotations: map[string]string{
			"dev.gvisor.spec.rootfs.type":    "erofs",
			"dev.gvisor.spec.rootfs.source":  rootImage,
			"dev.gvisor.spec.rootfs.overlay": "memory",
		},
	}
	if len(s.CPUFeatures) > 0 {
		// A checkpoint requires those that it began with.
		spec.Annotations[cpuFeatures] = strings.Join(s.CPUFeatures, ",")
	}
	// The origin of the initial files is not recorded here (the sentry gets them as a
	// descriptor): a checkpoint is restored only with its original annotations.
	return spec
}

// share limits a file system in memory to a part of the sandbox's memory, so that its files
// alone cannot exhaust it.
func share(l bothy.Limits, part int64, options ...string) []string {
	return append(options, fmt.Sprintf("size=%dk", l.MemoryBytes()/part>>10), fmt.Sprintf("nr_inodes=%d", Inodes(l)/part))
}

// inodeBytes is the memory for each file that a sandbox may have: a file, folder or link takes
// up to 2 KB of the kernel's, and as much again until garbage is collected.
const inodeBytes = 8 << 10

// Inodes returns how many files there may be, in addition to the template's.
func Inodes(l bothy.Limits) int64 { return l.MemoryBytes() / inodeBytes }
