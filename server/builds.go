package server

import (
	"context"
	"path/filepath"

	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/gvisor"
	"github.com/bothy-dev/bothy/engine/gvisor/library"
	"github.com/bothy-dev/bothy/engine/microvm"
	"github.com/bothy-dev/bothy/internal/embedded"
	"github.com/bothy-dev/bothy/store"
)

// BuildsFolder is where a server keeps the programs of its engines.
func BuildsFolder(c config.Config) string { return filepath.Join(c.Home, "engines") }

// RegisterFolder is where a server records, apart from its database, which machines belong to sandboxes.
func RegisterFolder(c config.Config) string { return filepath.Join(c.Home, "register") }

// spoken lists the versions of the protocol between a server and its engines' processes.
var spoken = map[string]builds.Range{
	gvisor.Name:  {Oldest: gvisor.OldestProtocol, Newest: gvisor.Protocol},
	microvm.Name: {Oldest: microvm.OldestProtocol, Newest: microvm.Protocol},
}

// openBuilds opens the engine builds of earlier servers and adds this server's own.
func (s *Server) openBuilds() (embedded.Paths, error) {
	c := s.config.Engines
	if err := builds.CheckRefuse(c.Refuse); err != nil {
		return embedded.Paths{}, err
	}
	o := builds.Options{Speaks: spoken, Refuse: c.Refuse, MaxBytes: c.KeepMB << 20, Log: s.log}
	if s.config.Cluster.On() {
		o.Fetch = s.depot.FetchBuild
		o.Elsewhere = func(ctx context.Context, name string) (bool, error) {
			return s.depot.Elsewhere(ctx, store.TreeEngines, name)
		}
	}
	var err error
	s.builds, err = builds.Open(BuildsFolder(s.config), o)
	if err != nil {
		return embedded.Paths{}, err
	}
	b, err := embedded.Extract(s.builds.Dir())
	s.builds.Pin(b.GuestImage, b.Sentry, b.Vminit)
	return b, err
}

// EngineBuild is the name of the build of gVisor's engine that this program contains.
func EngineBuild() (string, error) {
	parts, err := embedded.Parts()
	if err != nil {
		return "", err
	}
	return gvisor.BuildName(library.Own().Version, parts.Sentry.Digest, parts.Guest.Digest), nil
}
