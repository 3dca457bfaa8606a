package server

import (
	"path/filepath"

	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/gvisor"
	"github.com/bothy-dev/bothy/engine/microvm"
	"github.com/bothy-dev/bothy/internal/embedded"
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

// buildFetcher fetches engine builds from other hosts. It is nil without a cluster.
func (s *Server) buildFetcher() func(name, dir string) (*builds.Build, error) {
	if !s.config.Cluster.On() {
		return nil
	}
	return s.fetchBuild
}

// openBuilds opens the engine builds of earlier servers and adds this server's own.
func (s *Server) openBuilds() (embedded.Paths, error) {
	c := s.config.Engines
	if err := builds.CheckRefuse(c.Refuse); err != nil {
		return embedded.Paths{}, err
	}
	var err error
	s.builds, err = builds.Open(BuildsFolder(s.config), builds.Options{Fetch: s.buildFetcher(), Speaks: spoken, Refuse: c.Refuse, MaxBytes: c.KeepMB << 20, Log: s.log})
	if err != nil {
		return embedded.Paths{}, err
	}
	b, err := embedded.Extract(s.builds.Dir())
	s.builds.Pin(b.GuestImage, b.Sentry, b.Vminit)
	return b, err
}
