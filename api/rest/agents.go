package rest

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type (
	agentsInput struct {
		Body bothy.AgentAttach
	}
	agentsIDInput struct {
		ID string `path:"id" doc:"The attachment's id, or its environment's."`
	}
)

func (s *handlers) registerAgents() {
	svc := s.services.Agents
	if svc == nil {
		return
	}
	const base = "/v1/agents"
	openapi.Add(s.registry, middleware.Operation{
		ID: "attach-agents", Method: http.MethodPost, Path: base, Tag: "Agents",
		Summary: "Attach an environment of managed agents", Scope: bothy.ScopeAdmin, Status: http.StatusCreated, Secret: true,
		Text: "The server works for a self-hosted environment of Claude Managed Agents from now on: each session gets a sandbox, in which " +
			"its tools run. The environment key is kept encrypted, and is never shown again or seen by a sandbox. Attaching an environment " +
			"again replaces the key and settings, and its sessions continue.",
	}, func(ctx context.Context, in *agentsInput) (*openapi.Answer[*bothy.AgentAttachment], error) {
		return one(svc.AttachAgents(ctx, in.Body))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-agents", Method: http.MethodGet, Path: base, Tag: "Agents",
		Summary: "List attached environments", Scope: bothy.ScopeAdmin, Text: "Only the project's, oldest first.",
	}, func(ctx context.Context, _ *openapi.Empty) (*openapi.Answer[openapi.Items[*bothy.AgentAttachment]], error) {
		return many(svc.AgentAttachments(ctx))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "get-agents", Method: http.MethodGet, Path: base + "/{id}", Tag: "Agents",
		Summary: "Get an attached environment", Scope: bothy.ScopeAdmin, Text: "With its sessions, their sandboxes, and the reasons for failures.",
	}, func(ctx context.Context, in *agentsIDInput) (*openapi.Answer[*bothy.AgentAttachment], error) {
		return one(svc.AgentAttachment(ctx, in.ID))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "detach-agents", Revokes: true, Method: http.MethodDelete, Path: base + "/{id}", Tag: "Agents",
		Summary: "Detach an environment", Scope: bothy.ScopeAdmin,
		Text: "Its work ends, and the key is deleted. The sandboxes of its sessions are paused.",
	}, func(ctx context.Context, in *agentsIDInput) (*openapi.Empty, error) {
		return nil, svc.DetachAgents(ctx, in.ID)
	})
}
