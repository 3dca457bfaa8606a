package server

import (
	"path/filepath"

	"github.com/bothy-dev/bothy/agents"
	"github.com/bothy-dev/bothy/internal/repack"
)

// openAgents creates the service for managed agents. It is idle until runAgents.
func (s *Server) openAgents() {
	s.agents = agents.New(agents.Options{
		Keys: s.tokens, Store: s.store, Vault: s.vault, Sandboxes: s.lifecycle, Sleeper: s.lifecycle, Commands: s.lifecycle, Files: s.lifecycle.Files(),
		Transport: s.outward(), Repack: repack.Confined, Dir: filepath.Join(s.config.Home, "agents"), Log: s.log,
	})
}

// runAgents works for managed agents until stop is called. Call it only after the previous
// server's sandboxes have been recovered.
func (s *Server) runAgents() (stop func()) {
	return s.inBackground(s.agents.Run, "cannot read the environments of managed agents; their tools do not run")
}
