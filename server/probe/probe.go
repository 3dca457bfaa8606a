// Package probe starts sandboxes without a server and without a template, to determine what
// this host can run: for `bothy doctor`, and for the server before it starts its first virtual
// machine. Only server and cli use it.
package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/doctor"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/gvisor"
	"github.com/bothy-dev/bothy/engine/gvisor/library"
	"github.com/bothy-dev/bothy/engine/microvm"
	"github.com/bothy-dev/bothy/gateway"
	guestclient "github.com/bothy-dev/bothy/guest/client"
	"github.com/bothy-dev/bothy/internal/embedded"
)

// Engines returns a probe for each engine.
func Engines(c config.Config) []doctor.StartProbe {
	return []doctor.StartProbe{
		{Engine: gvisor.Name, Start: probeGvisor(c)},
		{Engine: microvm.Name, Start: probeMicrovm(c), Optional: c.Engine.Default != microvm.Name},
	}
}

// probeFolder creates a folder for a probe. Sandboxes run as nobody, which must be able to pass
// through it.
func probeFolder() (dir string, done func(), err error) {
	if dir, err = os.MkdirTemp("/var/tmp", "bothy-doctor-"); err != nil {
		return "", nil, err
	}
	done = func() { os.RemoveAll(dir) }
	if err := os.Chmod(dir, 0o711); err != nil {
		done()
		return "", nil, err
	}
	return dir, done, nil
}

// probeGvisor starts a sandbox that contains only the guest, without a server and without a
// template. If the operator refuses this engine build, it fails as a server would.
func probeGvisor(c config.Config) func(context.Context) (doctor.Started, error) {
	return func(ctx context.Context) (s doctor.Started, err error) {
		dir, done, err := probeFolder()
		if err != nil {
			return s, err
		}
		defer done()
		kept, err := builds.Open(filepath.Join(dir, "engines"), builds.Options{
			Speaks: map[string]builds.Range{gvisor.Name: {Oldest: gvisor.OldestProtocol, Newest: gvisor.Protocol}}, Refuse: c.Engines.Refuse,
		})
		if err != nil {
			return s, err
		}
		binaries, err := embedded.Extract(kept.Dir())
		if err != nil {
			return s, err
		}
		e, err := gvisor.New(gvisor.Options{
			Dir: filepath.Join(dir, "machines"), Sentry: binaries.Sentry, Guest: binaries.GuestImage, Builds: kept,
			CgroupParent: filepath.Base(dir), Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return s, err
		}
		defer e.Close()
		if err := e.Check(ctx); err != nil {
			return s, err
		}
		setFromLibrary(&s, e.Library())
		rootfs, err := emptyRootFS(ctx, dir)
		if err != nil {
			return s, err
		}
		s.Took, err = startOnce(ctx, e, bothy.MachineSpec{
			ID: "probe", RootFS: rootfs, Guest: binaries.GuestImage, Hostname: "probe",
			Limits: bothy.Limits{CPU: 1, MemoryMB: bothy.MinMemoryMB, DiskMB: bothy.MinDiskMB, Processes: 64},
		})
		return s, err
	}
}

// setFromLibrary reports which gVisor the sentry was built from.
func setFromLibrary(s *doctor.Started, gvisor library.Library) {
	s.Detail = fmt.Sprintf("Its kernel is %v.", gvisor)
	if !gvisor.Patched {
		s.Slow = "Build bothy with `make build`: with unpatched gVisor, sandboxes start more slowly and their number of files is not limited."
	}
}

// startOnce starts a machine, waits until its guest has adopted an identity, and destroys it.
func startOnce(ctx context.Context, e bothy.Engine, spec bothy.MachineSpec) (took time.Duration, err error) {
	began := time.Now()
	m, err := e.Start(ctx, spec)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Destroy(context.WithoutCancel(ctx))) }()
	dev, err := m.NetDevice(ctx)
	if err != nil {
		return 0, err
	}
	g, err := gateway.New(dev, gateway.Options{GuestMAC: bothy.GuestMAC[:]})
	if err != nil {
		return 0, errors.Join(err, dev.Close())
	}
	defer g.Close()
	c := guestclient.New(func(ctx context.Context) (net.Conn, error) { return g.Dial(ctx, bothy.GuestPort) }, "")
	defer c.CloseIdle()
	if err := c.WaitReady(ctx); err != nil {
		return 0, err
	}
	if _, err := c.Adopt(ctx, guestclient.Identity{Key: "probe", Hostname: "probe"}); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// emptyRootFS creates an image with only the required folders.
func emptyRootFS(ctx context.Context, dir string) (string, error) {
	root := filepath.Join(dir, "root")
	for _, d := range []string{"dev", "etc", "proc", "run", "sys", "tmp", "workspace", ".bothy"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return "", err
		}
	}
	image := filepath.Join(dir, "rootfs.erofs")
	if out, err := exec.CommandContext(ctx, "mkfs.erofs", "-E", "noinline_data", "-T0", image, root).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mkfs.erofs: %w: %s", err, out)
	}
	return image, nil
}
