package server

import (
	"context"
	"path/filepath"

	"github.com/bothy-dev/bothy/lifecycle/engines"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/engine/gvisor"
	"github.com/bothy-dev/bothy/engine/microvm"
	"github.com/bothy-dev/bothy/engine/microvm/boot"
	"github.com/bothy-dev/bothy/internal/embedded"
	"github.com/bothy-dev/bothy/server/probe"
)

// autoPolicies maps the setting engine.auto to the engines to try, in order.
var autoPolicies = map[string][]engines.Choice{
	config.AutoAccelerated: {{Engine: microvm.Name, Accelerated: true}, {Engine: gvisor.Name}},
	config.AutoStrongest:   {{Engine: microvm.Name}, {Engine: gvisor.Name}},
}

// openMicrovm opens the microvm engine: it fetches a kernel if there is none, and tests whether
// KVM works.
func (s *Server) openMicrovm(ctx context.Context, b embedded.Paths) (bothy.Engine, error) {
	if err := probe.CheckQEMU(); err != nil {
		return nil, err
	}
	o := probe.BootOptions(s.config, b)
	o.Progress = func(step string) {
		s.log.Info("preparing virtual machines", "step", step)
		engines.Step(ctx, step)
	}
	image, err := boot.Prepare(ctx, s.config.Engine.Microvm.Kernels, o)
	if err != nil {
		return nil, err
	}
	engines.Step(ctx, "test whether KVM works")
	t, err := probe.TryKVM(ctx, s.config, b, image, true)
	if err != nil {
		return nil, err
	}
	if t.Acceleration == bothy.AccelerationEmulated {
		s.log.Info("virtual machines are emulated", "reason", t.Reason)
	}
	e, err := microvm.New(microvm.Options{
		Dir: filepath.Join(s.config.Home, "vms"), Init: b.Vminit, Boot: image, Guest: b.GuestImage, Acceleration: t.Acceleration,
		CgroupParent: "bothy-" + shortHash(s.config.Home) + "-vm", UIDs: s.uids, Builds: s.builds, Log: s.log,
		Processor: hostProcessor(), CPULevel: s.config.Engine.CPULevel,
	})
	if err != nil {
		return nil, err
	}
	s.microvm.Store(e)
	// Its machines may move before the builds are published the next time.
	if err := s.membership.PublishBuild(ctx, e.Info().Build); err != nil {
		s.log.Warn("cannot publish the engine build of virtual machines to the other hosts yet", "error", err)
	}
	return e, nil
}

// defaultBuild returns the build of the engine used when a request names none.
func (s *Server) defaultBuild() string {
	if e := s.microvm.Load(); e != nil && s.config.Engine.Default == microvm.Name {
		return e.Info().Build
	}
	return s.engine.Info().Build
}

// closeMicrovm closes the microvm engine if it was opened.
func (s *Server) closeMicrovm() {
	if e := s.microvm.Load(); e != nil {
		e.Close()
	}
}
