package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/microvm/jail"
	"github.com/bothy-dev/bothy/engine/microvm/vm"
)

// vmm is the program that runs a machine: what differs between QEMU and others. What
// it runs is one process for each machine, which outlives this one.
type vmm interface {
	// version is part of the engine's build.
	version() string
	// command returns how to run a machine, in a tree.
	command(hardware) (argv []string, err error)
	// open connects to a machine's monitor by its sockets, and waits until it answers.
	open(ctx context.Context, dir string) (monitor, error)
}

// monitor controls one machine.
type monitor interface {
	// pause stops the processors and pending disk writes, and resume lets them continue. Calling
	// either twice is not an error.
	pause(ctx context.Context) error
	resume(ctx context.Context) error
	// save writes the state of all devices, without memory, of a paused machine; load reads it
	// into one that was started for this, which is paused afterwards.
	save(ctx context.Context, to *os.File) error
	load(ctx context.Context, from *os.File) error
	// balloon sets how much memory the machine's kernel may use, which the kernel takes or gives
	// back as soon as it can; ballooned returns how far it has come.
	balloon(ctx context.Context, bytes int64) error
	ballooned(ctx context.Context) (bytes int64, err error)
	Close() error
}

// hardware describes a machine to run. Files are descriptors that it inherits.
type hardware struct {
	ramMB, cpus int
	// There is no memory for the kernel between holeFromMB and holeToMB.
	holeFromMB, holeToMB int
	// bootCPUs is the number of processors that the kernel starts with.
	bootCPUs int
	accel    bothy.Acceleration
	// features are the processor features that the kernel sees; nil means all.
	features []string
	// ticks is how many thousand times a second the host's counter ticks.
	ticks uint64
	// wake is set for a machine that will be loaded.
	wake bool

	root, guest, upper int
	files              int // 0: no such disk; negative: one that is not read again
	modules            int // 0: no such disk
	monitor, events    int
	dev                int
}

// qemu is QEMU, from the first version whose stream network speaks Ethernet.
type qemu struct{ program }

// emulatedCPU is a processor that runs every x86-64 program of the last ten years, with features
// that emulation does well.
const emulatedCPU = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+rdrand,+arat"

// qemuFeatures are QEMU's names where they differ from Linux's, and the features that its
// processor qemu64 always has.
var qemuFeatures = map[string]string{
	"pni": "sse3", "sse4_1": "sse4.1", "sse4_2": "sse4.2", "lahf_lm": "lahf-lm", "osxsave": "",
	"apic": "", "clflush": "", "cmov": "", "cx8": "", "de": "", "fpu": "", "fxsr": "", "lm": "", "mca": "", "mce": "", "mmx": "", "msr": "", "mtrr": "",
	"nx": "", "pae": "", "pat": "", "pge": "", "pse": "", "pse36": "", "sep": "", "sse": "", "sse2": "", "syscall": "", "tsc": "", "vme": "", "ht": "",
}

// cpuModel is QEMU's processor with given features, or the host's with all. The features that
// clocks and interrupts need are KVM's own.
func cpuModel(features []string) string {
	if features == nil {
		return "host,migratable=on"
	}
	model := "qemu64,-svm,+x2apic,+tsc-deadline,+arat"
	for _, f := range features {
		name, other := qemuFeatures[f]
		if !other {
			name = f
		}
		if name != "" {
			model += ",+" + name
		}
	}
	return model
}

// translated is the memory for translated code, in MB.
const translated = 128

// argsRevision changes with the arguments below: a snapshot can only be restored into the same
// machine.
const argsRevision = 2

func (q qemu) version() string { return fmt.Sprintf("qemu%s.%d", q.program.version, argsRevision) }

func (q qemu) command(h hardware) ([]string, error) {
	a := []string{treeQEMU,
		"-no-user-config", "-nodefaults", "-display", "none", "-no-reboot", "-S", "-L", treeFirmware,
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-M", "microvm,acpi=on,pit=off,pic=off,rtc=on,isa-serial=on,auto-kernel-cmdline=off,memory-backend=ram,suppress-vmdesc=on",
		"-object", fmt.Sprintf("memory-backend-memfd,id=ram,size=%dM,share=on", h.ramMB),
		"-m", fmt.Sprintf("%dM", h.ramMB), "-smp", fmt.Sprint(h.cpus),
		"-global", "virtio-mmio.force-legacy=off",
		// The state of devices is written and read alone, without what precedes it in a
		// migration.
		"-global", "migration.send-configuration=off", "-global", "migration.store-global-state=off",
	}
	switch h.accel {
	case bothy.AccelerationKVM:
		a = append(a, "-accel", "kvm", "-cpu", cpuModel(h.features))
	default:
		a = append(a, "-accel", fmt.Sprintf("tcg,thread=multi,tb-size=%d", translated), "-cpu", emulatedCPU)
	}
	if h.wake {
		a = append(a, "-incoming", "defer")
	} else {
		a = append(a, "-kernel", treeKernel, "-initrd", treeInitramfs, "-append", kernelArgs(h))
	}
	for i, fd := range []int{h.monitor, h.events} {
		a = append(a, "-chardev", fmt.Sprintf("socket,id=monitor%d,fd=%d,server=on,wait=off", i, fd),
			"-mon", fmt.Sprintf("chardev=monitor%d,mode=control", i))
	}
	a = append(a, "-chardev", "pipe,id=words,path="+treePipes+"/"+wordPipe, "-serial", "chardev:words",
		"-device", "virtio-serial-device,max_ports=3")
	for i, name := range []string{vm.PortCtl, vm.PortNews} {
		a = append(a, "-chardev", fmt.Sprintf("pipe,id=%s,path=%s/%s", name, treePipes, name),
			"-device", fmt.Sprintf("virtserialport,chardev=%s,name=%s,nr=%d", name, name, i+1))
	}
	a = append(a, disk(vm.DiskRoot, h.root, true)...)
	a = append(a, disk(vm.DiskGuest, h.guest, true)...)
	a = append(a, disk(vm.DiskUpper, h.upper, false)...)
	if h.files != 0 {
		a = append(a, disk(vm.DiskFiles, h.files, true)...)
	}
	if h.modules != 0 {
		a = append(a, disk(vm.DiskModules, h.modules, true)...)
	}
	return append(a,
		"-netdev", fmt.Sprintf("stream,id=cable,server=on,addr.type=fd,addr.str=%d", h.dev),
		"-device", fmt.Sprintf("virtio-net-device,netdev=cable,mac=%s,host_mtu=%d", mac(bothy.GuestMAC), netDeviceMTU),
		"-object", "rng-builtin,id=rng", "-device", "virtio-rng-device,rng=rng",
		"-device", "virtio-balloon-device,id=balloon,free-page-reporting=on",
	), nil
}

func mac(m [6]byte) string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// disk attaches a descriptor as a disk. The machine's kernel finds it by its name. Nothing on it
// outlives the machine without a snapshot, so nothing waits for the host's disk.
func disk(name string, fd int, readOnly bool) []string {
	if fd < 0 {
		return []string{"-blockdev", "null-co,node-name=" + name + ",size=1048576,read-only=on",
			"-device", "virtio-blk-device,drive=" + name + ",serial=" + name}
	}
	node := fmt.Sprintf("driver=raw,node-name=%s,read-only=%s,file.driver=file,file.filename=/dev/fdset/%d,file.locking=off,cache.no-flush=on", name, onOff(readOnly), fd)
	if !readOnly {
		node += ",discard=unmap,file.discard=unmap,detect-zeroes=unmap"
	}
	device := "virtio-blk-device,drive=" + name + ",serial=" + name
	if !readOnly {
		// If the host's disk is full, the machine waits for space rather than lose data.
		device += ",werror=enospc,discard=on"
	}
	return []string{"-add-fd", fmt.Sprintf("fd=%d,set=%d", fd, fd), "-blockdev", node, "-device", device}
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// guestAddressMB returns the machine's physical address of a place in its memory: addresses have
// a gap for devices.
func guestAddressMB(mb int) int {
	const gapFromMB, gapToMB = 3072, 4096
	if mb < gapFromMB {
		return mb
	}
	return mb - gapFromMB + gapToMB
}

// kernelArgs are the kernel arguments of a machine.
func kernelArgs(h hardware) string {
	a := []string{
		"console=ttyS0", "quiet", "loglevel=5", "apic=verbose", "panic=-1", "reboot=t", "8250.nr_uarts=1",
		fmt.Sprintf("maxcpus=%d", h.bootCPUs), "rcupdate.rcu_expedited=1", "random.trust_cpu=on",
		"cgroup_no_v1=all",
		// Let the kernel's first allocations be at the beginning, and not in a block that is to
		// go offline.
		"movable_node", "transparent_hugepage=madvise",
		// No device needs memory below 4 GB.
		"swiotlb=noforce",
	}
	if h.holeFromMB < h.holeToMB {
		a = append(a, fmt.Sprintf("memmap=%dM%%%dM-1", h.holeToMB-h.holeFromMB, guestAddressMB(h.holeFromMB)))
	}
	if h.accel != bothy.AccelerationKVM {
		// An emulated processor has no flaws to mitigate.
		a = append(a, "mitigations=off", "init_on_alloc=0", "tsc=reliable", fmt.Sprintf("tsc_early_khz=%d", h.ticks))
	}
	return strings.Join(a, " ")
}

const (
	monitorSocket   = "monitor"
	eventsSocket    = "events"
	netDeviceSocket = "cable"
)

func (q qemu) open(ctx context.Context, dir string) (monitor, error) {
	c, err := dialQMP(ctx, dir+"/"+monitorSocket)
	if err != nil {
		return nil, err
	}
	return qemuMonitor{c}, nil
}

type qemuMonitor struct{ *qmp }

func (q qemuMonitor) pause(ctx context.Context) error {
	_, err := q.do(ctx, "stop", nil)
	return err
}

func (q qemuMonitor) resume(ctx context.Context) error {
	_, err := q.do(ctx, "cont", nil)
	return err
}

func (q qemuMonitor) balloon(ctx context.Context, bytes int64) error {
	_, err := q.do(ctx, "balloon", map[string]any{"value": bytes})
	return err
}

func (q qemuMonitor) ballooned(ctx context.Context) (int64, error) {
	b, err := q.do(ctx, "query-balloon", nil)
	if err != nil {
		return 0, err
	}
	var is struct {
		Actual int64 `json:"actual"`
	}
	err = json.Unmarshal(b, &is)
	return is.Actual, err
}

// save uses the command made for Xen's tools, which also keep the memory elsewhere. It writes no
// description of the devices at the end, so load does not expect one.
func (q qemuMonitor) save(ctx context.Context, to *os.File) error {
	b, err := q.do(ctx, "add-fd", nil, to)
	if err != nil {
		return err
	}
	var set struct {
		ID int `json:"fdset-id"`
	}
	if err := json.Unmarshal(b, &set); err != nil {
		return err
	}
	_, err = q.do(ctx, "xen-save-devices-state", map[string]any{"filename": fmt.Sprintf("/dev/fdset/%d", set.ID), "live": false})
	_, removed := q.do(ctx, "remove-fd", map[string]any{"fdset-id": set.ID})
	return errors.Join(err, removed)
}

func (q qemuMonitor) load(ctx context.Context, from *os.File) error {
	if _, err := q.do(ctx, "getfd", map[string]any{"fdname": "devices"}, from); err != nil {
		return err
	}
	if _, err := q.do(ctx, "migrate-incoming", map[string]any{"uri": "fd:devices"}); err != nil {
		return err
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		b, err := q.do(ctx, "query-migrate", nil)
		if err != nil {
			return fmt.Errorf("the devices could not be loaded: %w", err)
		}
		var m struct {
			Status string `json:"status"`
			Why    string `json:"error-desc"`
		}
		if err := json.Unmarshal(b, &m); err != nil {
			return err
		}
		switch m.Status {
		case "completed":
			return nil
		case "failed":
			return fmt.Errorf("the devices could not be loaded: %s", m.Why)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// spawnConfig is how a jail runs a machine.
func spawnConfig(tree, dir string, user int, argv, env []string, accel bothy.Acceleration) jail.Config {
	c := jail.Config{
		Root: tree, At: dir + "/root", Argv: argv, Env: env, UID: user, GID: user, SmallPages: accel == bothy.AccelerationEmulated,
		Binds: map[string]string{treePipes: dir + "/" + pipesDir},
	}
	if accel == bothy.AccelerationKVM {
		c.Devices = map[string]string{treeKVM: treeKVM}
		c.Groups = deviceGroups(treeKVM)
	}
	return c
}

// deviceGroups is the group that may open a device, unless it is root's.
func deviceGroups(path string) []int {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Gid == 0 || st.Mode&0o060 != 0o060 {
		return nil
	}
	return []int{int(st.Gid)}
}
