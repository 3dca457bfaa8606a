package server

import (
	"path/filepath"

	"github.com/bothy-dev/bothy/agents"
	"github.com/bothy-dev/bothy/gateway"
)

// openAgents makes what works for managed agents. It does no work before runAgents.
func (s *Server) openAgents() {
	s.agents = agents.New(agents.Options{
		Store: s.store, Vault: s.vault, Sandboxes: s.lifecycle, Sleeper: s.lifecycle, Commands: s.lifecycle, Files: s.lifecycle.Files(),
		Transport: gateway.Transport(s.config.Webhooks.Allow, nil), Dir: filepath.Join(s.config.Home, "agents"), Log: s.log,
	})
}

// runAgents works for managed agents until stop is called. The sandboxes of the last
// server must have been taken over before.
func (s *Server) runAgents() (stop func()) {
	return s.inBackground(s.agents.Run, "environments of managed agents cannot be read, and are not worked for")
}
