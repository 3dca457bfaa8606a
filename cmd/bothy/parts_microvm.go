package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/doctor"
	"github.com/bothy-dev/bothy/engine/gvisor"
	"github.com/bothy-dev/bothy/engine/microvm"
	"github.com/bothy-dev/bothy/engine/microvm/boot"
	"github.com/bothy-dev/bothy/internal/embedded"
	"github.com/bothy-dev/bothy/lifecycle"
)

// autoPolicies are what the setting engine.auto means.
var autoPolicies = map[string][]lifecycle.Choice{
	config.AutoAccelerated: {{Engine: microvm.Name, Accelerated: true}, {Engine: gvisor.Name}},
	config.AutoStrongest:   {{Engine: microvm.Name}, {Engine: gvisor.Name}},
}

// openMicrovm makes the engine of virtual machines ready: it fetches a kernel if there
// is none, and tries out what runs the processor.
func (p *parts) openMicrovm(ctx context.Context, b embedded.Paths) (bothy.Engine, error) {
	if err := checkQEMU(); err != nil {
		return nil, err
	}
	o := bootOptions(p.config, b)
	o.Progress = func(step string) {
		p.log.Info("prepare virtual machines", "step", step)
		lifecycle.Step(ctx, step)
	}
	image, err := boot.Prepare(ctx, p.config.Engine.Microvm.Kernels, o)
	if err != nil {
		return nil, err
	}
	lifecycle.Step(ctx, "try what runs its processor")
	t, err := tryKVM(ctx, p.config, b, image, true)
	if err != nil {
		return nil, err
	}
	if t.Acceleration == bothy.AccelerationEmulated {
		p.log.Info("virtual machines are emulated", "reason", t.Reason)
	}
	e, err := microvm.New(microvm.Options{
		Dir: filepath.Join(p.config.Home, "vms"), Init: b.Vminit, Boot: image, Guest: b.GuestImage, Acceleration: t.Acceleration,
		CgroupParent: "bothy-" + shortHash(p.config.Home) + "-vm", UIDs: p.uids, Builds: p.builds, Log: p.log,
	})
	if err != nil {
		return nil, err
	}
	p.microvm.Store(e)
	return e, nil
}

// defaultBuild is the engine build of requests that name no engine.
func (p *parts) defaultBuild() string {
	if e := p.microvm.Load(); e != nil && p.config.Engine.Default == microvm.Name {
		return e.Info().Build
	}
	return p.engine.Info().Build
}

// closeMicrovm gives up the engine of virtual machines if it was opened.
func (p *parts) closeMicrovm() {
	if e := p.microvm.Load(); e != nil {
		e.Close()
	}
}

// bootOptions say what virtual machines boot, by the settings.
func bootOptions(c config.Config, b embedded.Paths) boot.Options {
	return boot.Options{Init: b.Vminit, Kernel: c.Engine.Microvm.Kernel, Modules: c.Engine.Microvm.Modules}
}

// checkQEMU says in one way everywhere that QEMU is not there. Whether its version
// will do the engine finds out.
func checkQEMU() error {
	if _, err := exec.LookPath(microvm.DefaultQEMU); err != nil {
		return bothy.Errorf(bothy.CodeEngineMissing, "QEMU, which runs virtual machines, is not installed").
			WithHint("Run: sudo bothy doctor --fix").Because(err)
	}
	return nil
}

// fetchMicrovmKernel fetches the newest kernel, or unpacks the operator's.
func fetchMicrovmKernel(ctx context.Context, c config.Config, say func(string)) error {
	// Not where a server that runs keeps its own.
	dir, done, err := probeFolder()
	if err != nil {
		return err
	}
	defer done()
	b, err := embedded.Extract(dir)
	if err != nil {
		return err
	}
	o := bootOptions(c, b)
	o.Update, o.Progress = true, say
	image, err := boot.Prepare(ctx, c.Engine.Microvm.Kernels, o)
	if err == nil {
		say("the kernel of virtual machines is " + image.Version)
	}
	return err
}

// probeMicrovm boots a virtual machine without a server and without a template, after
// it has found out what runs the processor.
func probeMicrovm(c config.Config) func(context.Context) (doctor.Started, error) {
	return func(ctx context.Context) (s doctor.Started, err error) {
		if err := checkQEMU(); err != nil {
			return s, err
		}
		dir, done, err := probeFolder()
		if err != nil {
			return s, err
		}
		defer done()
		b, err := embedded.Extract(filepath.Join(dir, "engines"))
		if err != nil {
			return s, err
		}
		image, err := boot.Find(ctx, c.Engine.Microvm.Kernels, bootOptions(c, b))
		if err != nil {
			return s, err
		}
		t, err := tryKVM(ctx, c, b, image, false)
		if err != nil {
			return s, err
		}
		took, err := startVM(ctx, dir, b, image, t.Acceleration)
		if err != nil {
			return s, err
		}
		s.Took, s.Detail = took, fmt.Sprintf("It ran Linux %s under KVM.", image.Version)
		if t.Acceleration == bothy.AccelerationEmulated {
			s.Detail = fmt.Sprintf("It ran Linux %s, emulated: %s.", image.Version, t.Reason)
			s.Slow = "For speed use a host with KVM; on one that is a virtual machine itself, its provider must allow nested virtualisation."
		}
		return s, nil
	}
}

// startVM starts a virtual machine with nothing but the guest, and ends it.
func startVM(ctx context.Context, dir string, b embedded.Paths, image boot.Image, a bothy.Acceleration) (took time.Duration, err error) {
	rootfs, err := emptyRootFS(ctx, dir)
	if err != nil {
		return 0, err
	}
	e, err := microvm.New(microvm.Options{
		Dir: filepath.Join(dir, "vms-"+string(a)), Init: b.Vminit, Boot: image, Guest: b.GuestImage, Acceleration: a,
		CgroupParent: "bothy-doctor-" + shortHash(dir+string(a)), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return 0, err
	}
	defer e.Close()
	return startOnce(ctx, e, bothy.MachineSpec{
		ID: "probe", RootFS: rootfs, Guest: b.GuestImage, Hostname: "probe",
		Limits: bothy.Limits{CPU: 1, MemoryMB: 128, DiskMB: bothy.MinDiskMB, Processes: 64},
	})
}
