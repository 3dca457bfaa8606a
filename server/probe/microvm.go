package probe

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
	"github.com/bothy-dev/bothy/engine/microvm"
	"github.com/bothy-dev/bothy/engine/microvm/boot"
	"github.com/bothy-dev/bothy/internal/embedded"
)

// BootOptions returns what virtual machines boot, from the settings.
func BootOptions(c config.Config, b embedded.Paths) boot.Options {
	return boot.Options{Init: b.Vminit, Kernel: c.Engine.Microvm.Kernel, Modules: c.Engine.Microvm.Modules}
}

// CheckQEMU returns an error if QEMU is not installed. The engine checks its version.
func CheckQEMU() error {
	if _, err := exec.LookPath(microvm.DefaultQEMU); err != nil {
		return bothy.Errorf(bothy.CodeEngineMissing, "QEMU, which runs virtual machines, is not installed").
			WithHint("Run: sudo bothy doctor --fix").Because(err)
	}
	return nil
}

// FetchKernel fetches the newest kernel, or unpacks the operator's own.
func FetchKernel(ctx context.Context, c config.Config, say func(string)) error {
	// Not in the folder that a running server uses.
	dir, done, err := probeFolder()
	if err != nil {
		return err
	}
	defer done()
	b, err := embedded.Extract(dir)
	if err != nil {
		return err
	}
	o := BootOptions(c, b)
	o.Update, o.Progress = true, say
	image, err := boot.Prepare(ctx, c.Engine.Microvm.Kernels, o)
	if err == nil {
		say("the kernel of virtual machines is " + image.Version)
	}
	return err
}

// probeMicrovm boots a virtual machine without a server and without a template, under KVM if
// that works.
func probeMicrovm(c config.Config) func(context.Context) (doctor.Started, error) {
	return func(ctx context.Context) (s doctor.Started, err error) {
		if err := CheckQEMU(); err != nil {
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
		image, err := boot.Find(ctx, c.Engine.Microvm.Kernels, BootOptions(c, b))
		if err != nil {
			return s, err
		}
		t, err := TryKVM(ctx, c, b, image, false)
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
			s.Slow = "For speed use a host with KVM; if the host is itself a virtual machine, its provider must allow nested virtualisation."
		}
		return s, nil
	}
}

// startVM starts a virtual machine that contains only the guest, and destroys it.
func startVM(ctx context.Context, dir string, b embedded.Paths, image boot.Image, a bothy.Acceleration) (took time.Duration, err error) {
	rootfs, err := emptyRootFS(ctx, dir)
	if err != nil {
		return 0, err
	}
	e, err := microvm.New(microvm.Options{
		Dir: filepath.Join(dir, "vms-"+string(a)), Init: b.Vminit, Boot: image, Guest: b.GuestImage, Acceleration: a,
		CgroupParent: filepath.Base(dir) + "-" + string(a), Log: slog.New(slog.DiscardHandler),
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
