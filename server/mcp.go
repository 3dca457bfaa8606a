package server

import "github.com/bothy-dev/bothy/mcp"

// openMCP serves the Model Context Protocol on the API's listener.
func (s *Server) openMCP() {
	server := mcp.New(mcp.Services{
		SessionID: s.membership.sessionIDs(),
		Sandboxes: s.lifecycle, Exec: s.lifecycle, Code: s.lifecycle, Files: s.lifecycle.Files(), Snapshots: s.lifecycle, Limits: s.lifecycle,
		Templates: s.templates, Builder: s.builder, Capturer: s.lifecycle, Recorder: s.audit,
	}, s.version, s.log)
	s.api.Handle(mcp.Path, mcp.Handler(server, s.tokens, s.log))
	s.api.Handle("GET "+mcp.MetadataPath, mcp.Metadata())
}
