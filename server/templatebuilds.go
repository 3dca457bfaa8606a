package server

import (
	"context"
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/cluster"
	"github.com/bothy-dev/bothy/engine/gvisor"
	"github.com/bothy-dev/bothy/gateway"
	"github.com/bothy-dev/bothy/template/build"
)

// openBuilder creates the builder of templates from Dockerfiles. Its Recover continues the
// builds of the previous server.
func (s *Server) openBuilder() error {
	cas, err := s.config.TrustedCAs()
	if err != nil {
		return err
	}
	s.builder, err = build.New(build.Options{
		Dir: filepath.Join(s.config.Home, "builds"), Cache: s.templates.CacheDir(),
		Sandboxes: s.lifecycle, Files: s.lifecycle.Files(), Library: s.templates, Seal: s.vault.Seal, Open: s.vault.Open, CABundle: cas,
		CheckNetwork: func(n bothy.Network) error { return gateway.CheckPolicy(n, nil) }, Log: s.log,
		Plan: s.projects.Plan,
		Memory: func(ctx context.Context, project string) (context.Context, func()) {
			m := s.inflight.Trees.Job(project)
			return bothy.WithMemoryAccount(ctx, m), m.End
		},
		Bounded:     func(engine string) bool { return engine == gvisor.Name },
		MinFreeDisk: s.config.Snapshots.MinFreeDiskMB << 20, Unknown: s.lostBuild,
	})
	if err == nil {
		s.undo.Add(s.builder.Close)
	}
	return err
}

// lostBuild is the error of a build that this host does not know, where one that may have made it is
// lost.
func (s *Server) lostBuild(ctx context.Context, id string) error {
	hosts, err := s.membership.Peers(ctx)
	if err != nil {
		return err
	}
	return cluster.LostBuild(id, hosts)
}
