package main

import "github.com/bothy-dev/bothy/mcp"

// openMCP puts the agents' door beside the REST API.
func (p *parts) openMCP() {
	server := mcp.New(mcp.Services{
		Sandboxes: p.lifecycle, Exec: p.lifecycle, Code: p.lifecycle, Files: p.lifecycle.Files(), Snapshots: p.lifecycle, Limits: p.lifecycle,
		Recorder: p.audit,
	}, version, p.log)
	p.api.Handle(mcp.Path, mcp.Handler(server, p.tokens, p.log))
	p.api.Handle("GET "+mcp.MetadataPath, mcp.Metadata())
}
