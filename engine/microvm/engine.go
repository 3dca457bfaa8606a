// Package microvm is the engine that gives every sandbox its own virtual machine with a Linux
// kernel, isolated by the processor. Only server and tests use it; everything else sees
// bothy.Engine.
//
// A machine is one QEMU process with its own user, an empty root and its own namespaces, behind
// a system call filter, under a cgroup. Its disks are the template's image and the guest's,
// read-only and shared, and a sparse file for writes. Its network device and its monitors are
// sockets in the machine's folder, so that it outlives the server. If the host has no working
// KVM, the processor is emulated.
//
// A snapshot's memory is a file that each copy maps privately: a copy loads what it
// touches, and copies share what they do not change.
package microvm

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/cgroup"
	"github.com/bothy-dev/bothy/engine/microvm/boot"
	"github.com/bothy-dev/bothy/engine/uid"
)

// Name is the engine's name in requests.
const Name = "microvm"

// DefaultQEMU is the program that runs machines unless Options names another.
const DefaultQEMU = "qemu-system-x86_64"

// Options say where the engine keeps its state, and what machines are made of.
type Options struct {
	// Dir holds one folder per machine.
	Dir string
	// Init is the path of the binary made from cmd/vminit, which also is the first
	// program of Boot.
	Init string
	// Boot is the kernel and initramfs.
	Boot boot.Image
	// Guest is the image with the guest. A snapshot's process 1 continues in it, so it
	// is part of the build. It may be empty if no snapshots are kept.
	Guest string
	// QEMU is the program's name or path; empty means DefaultQEMU.
	QEMU string
	// Acceleration is the result of Probe; empty means emulated.
	Acceleration bothy.Acceleration
	// Processor is the host's, and CPULevel what accelerated machines see of it; empty means
	// bothy.CPUHost.
	Processor bothy.Processor
	CPULevel  string
	// DiskPatience is how long a machine waits for space on the host's disk before it is ended.
	// Zero means 30 seconds.
	DiskPatience time.Duration
	// CgroupParent names the cgroup of this server's machines, unique on the host.
	CgroupParent string
	// UIDs gives each machine its own user; nil means uid.Default.
	UIDs *uid.Pool
	// Builds keeps this build for later servers, and those of earlier ones; nil means a store in
	// Dir.
	Builds *builds.Store
	Log    *slog.Logger
}

const defaultDiskPatience = 30 * time.Second

// cacheName is the folder in Options.Dir for files that are made once.
const cacheName = ".cache"

// Engine implements bothy.Engine.
type Engine struct {
	o       Options
	vmm     vmm
	builds  *builds.Store
	own     *builds.Held // what machines of this engine's build are run from
	cgroups *cgroup.Parent
	uids    *uid.Pool
	sharing *cgroup.Sharing
	log     *slog.Logger
	// made is when the engine was created.
	made instant
	// boots holds one element for each emulated machine that boots.
	boots chan struct{}

	mu sync.Mutex
	// held are the ids of machines that exist or are being made.
	held map[string]bool
}

var (
	_ bothy.Engine      = (*Engine)(nil)
	_ bothy.BuildKeeper = (*Engine)(nil)
)

// New prepares the engine; it starts no sandbox. It fails with CodeEngineMissing and a
// hint when the host lacks something.
func New(o Options) (*Engine, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.DiskPatience = cmp.Or(o.DiskPatience, defaultDiskPatience)
	o.Acceleration = cmp.Or(o.Acceleration, bothy.AccelerationEmulated)
	if os.Geteuid() != 0 {
		return nil, bothy.Errorf(bothy.CodeEngineMissing, "the microvm engine needs root to shut QEMU in").WithHint("Run the server as root.")
	}
	if runtime.GOARCH != "amd64" {
		return nil, bothy.Errorf(bothy.CodeEngineMissing, "the microvm engine is there for x86-64 only").WithHint("Use the engine gvisor.")
	}
	p, err := findQEMU(cmp.Or(o.QEMU, DefaultQEMU))
	if err != nil {
		return nil, err
	}
	e := &Engine{o: o, vmm: qemu{p}, log: o.Log, made: now(), boots: make(chan struct{}, runtime.NumCPU()), held: map[string]bool{}}
	cache := filepath.Join(o.Dir, cacheName)
	for _, dir := range []string{o.Dir, cache} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, err
		}
	}
	if err := e.openBuilds(); err != nil {
		return nil, err
	}
	if err := e.keepOwn(p); err != nil {
		return nil, missing(err)
	}
	if e.uids, err = engine.UIDs(o.UIDs); err != nil {
		return nil, err
	}
	if e.cgroups, err = engine.Groups(o.CgroupParent); err != nil {
		return nil, err
	}
	e.sharing = e.cgroups.Share()
	return e, nil
}

// missing keeps errors that already say what to do.
func missing(err error) error {
	var be *bothy.Error
	if errors.As(err, &be) {
		return err
	}
	return bothy.Errorf(bothy.CodeEngineMissing, "the microvm engine cannot be used: %v", err).
		WithHint("Run: sudo bothy doctor --fix").Because(err)
}

// Close releases the engine's resources. Machines keep running.
func (e *Engine) Close() error {
	e.sharing.Close()
	e.cgroups.Remove() // as far as no machine is in it
	return nil
}

// Info says which engine this is.
func (e *Engine) Info() bothy.EngineInfo {
	return bothy.EngineInfo{Name: Name, Build: e.own.Name, Kernel: e.o.Boot.Version, Snapshots: true, Acceleration: e.o.Acceleration, Shown: e.shown(), CPULevel: e.o.CPULevel}
}

// shown returns the processor that machines see. An emulated one has another.
func (e *Engine) shown() bothy.Processor {
	if e.o.Acceleration != bothy.AccelerationKVM {
		return bothy.Processor{}
	}
	p := e.o.Processor.Shown(e.o.CPULevel)
	p.Hides = true
	return p
}

// Check finds nothing: New fails if the host lacks something.
func (e *Engine) Check(context.Context) error {
	for _, f := range []string{e.o.Init, filepath.Join(e.own.TreePath(), treeQEMU)} {
		if !isFile(f) {
			return bothy.Errorf(bothy.CodeEngineMissing, "%s is gone", f).WithHint("Start the server again.")
		}
	}
	return nil
}

// hold reserves an id.
func (e *Engine) hold(id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held[id] {
		return engine.Conflict(id)
	}
	e.held[id] = true
	return nil
}

func (e *Engine) releaseID(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.held, id)
}

func (e *Engine) holds(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held[id]
}

func (e *Engine) dir(id string) string { return filepath.Join(e.o.Dir, id) }
