package driver

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gvisor.dev/gvisor/pkg/hostos"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"

	"github.com/bothy-dev/bothy"
)

// PanicLog is the file in a machine's folder that receives the sentry's panics.
const PanicLog = "panic.log"

// flags are the library's options for one machine.
func flags(dir string) []string {
	return []string{
		"--root=" + dir,
		"--panic-log=" + filepath.Join(dir, PanicLog),
		"--network=sandbox",
		"--ignore-cgroups",
		"--platform=systrap",
		"--directfs=true",
		"--overlay2=root:memory",
		"--allow-suid",
		"--allow-rootfs-tar-annotation",
		"--host-settings=ignore",
		"--watchdog-action=log",
		"--systrap-disable-fast-path=" + strconv.FormatBool(runtime.NumCPU() == 1),
		// The network device loses no packets, and one processor handles them without passing
		// them to another thread.
		"--rx-checksum-offload=true",
		"--tx-checksum-offload=true",
		"--network-processors-per-channel=1",
	}
}

// anyConfig is the configuration of a machine without a folder. It is kept because making one
// takes a millisecond.
var anyConfig = sync.OnceValues(func() (*config.Config, error) {
	fs := flag.NewFlagSet("sentry", flag.ContinueOnError)
	config.RegisterFlags(fs)
	if err := fs.Parse(flags("/")); err != nil {
		return nil, err
	}
	return config.NewFromFlags(fs)
})

// cpuPeriod is the period, in microseconds, that cgroups inside show.
const cpuPeriod = 100_000

// hostFlags tell the sentry what it would otherwise read from the host, and cannot.
var hostFlags = sync.OnceValue(func() (flags []string) {
	read := func(path string) string {
		b, _ := os.ReadFile(path) // not every host has it
		return strings.TrimSpace(string(b))
	}
	if name := read("/sys/devices/virtual/dmi/id/product_name"); name != "" {
		flags = append(flags, "--product-name="+name)
	}
	for _, setting := range []string{"shmem_enabled", "defrag"} {
		choice := read("/sys/kernel/mm/transparent_hugepage/" + setting)
		_, choice, _ = strings.Cut(choice, "[") // of several
		if choice, _, ok := strings.Cut(choice, "]"); ok {
			flags = append(flags, "--host-thp-"+strings.ReplaceAll(setting, "_", "-")+"="+choice)
		}
	}
	return flags
})

// overlaySize limits the overlay's upper layer: its bytes and, if the library supports
// it, its files.
func overlaySize(patched bool, l bothy.Limits) string {
	size := fmt.Sprintf("%dm", l.DiskMB)
	if patched {
		size += fmt.Sprintf(";nr_inodes=%d", Inodes(l))
	}
	return size
}

// flagOf returns the flag that passes a file to a sentry.
var flagOf = map[Role]string{
	RolePanicLog: "panic-log-fd", RoleRoot: "io-fds", RoleGuest: "io-fds", RoleFilestore: "gofer-filestore-fds",
	RoleFilesTar: "rootfs-upper-tar-fd", RoleSpec: "spec-fd", RoleControl: "controller-fd", RoleNull: "stdio-fds", RoleReady: "start-sync-fd",
}

// Prepare fills in what the library's command for a sentry requires.
func Prepare(l Launch) (p Prepared, err error) {
	given := map[bool][]string{}
	for i, role := range l.Files {
		name := flagOf[role]
		if name == "" {
			return p, fmt.Errorf("a sentry knows no file with the role %q", role)
		}
		early := role == RolePanicLog
		given[early] = append(given[early], fmt.Sprintf("--%s=%d", name, l.FirstFD+i))
	}
	total, err := hostos.TotalSystemMemory()
	if err != nil {
		return p, err
	}
	memory := min(total, uint64(l.Limits.MemoryBytes()))
	p.Args = slices.Concat([]string{"runsc-sandbox"}, flags(l.Dir), given[true], []string{"boot"})
	p.Boot = len(p.Args)
	p.Args = slices.Concat(p.Args, hostFlags(), []string{
		"--bundle=" + l.Dir, "--gofer-mount-confs=" + layers(overlaySize(l.Patched, l.Limits)),
		// A file system in memory that a program mounts gets half of the first.
		"--total-host-memory=" + strconv.FormatUint(memory, 10), "--total-memory=" + strconv.FormatUint(memory, 10),
		// These are what programs inside see. The limits themselves are the cgroup's.
		"--cpu-num=" + strconv.Itoa(max(1, int(math.Ceil(l.Limits.CPU)))),
		"--cpu-period=" + strconv.Itoa(cpuPeriod), "--cpu-quota=" + strconv.Itoa(int(l.Limits.CPU*cpuPeriod)),
	}, given[false], []string{l.Name})
	p.Alone, p.MountFD = []string{"--apply-caps=true", "--setup-root"}, "--proc-mount-sync-fd="
	p.Spec, err = json.Marshal(ociSpec(l, filepath.Join(l.Dir, "root")))
	return p, err
}
