package rest

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type (
	hostInput struct {
		Host string `path:"host" doc:"The host's name."`
	}
	sandboxMoveInput struct {
		ID   string `path:"id" doc:"The sandbox's id."`
		Body *bothy.SandboxMove
	}
	hostUpdateInput struct {
		Host string `path:"host" doc:"The host's name."`
		Body bothy.HostUpdate
	}
)

func (s *handlers) registerHosts() {
	svc := s.services.Cluster
	if svc == nil {
		return
	}
	const base, path = "/v1/hosts", "/v1/hosts/{host}"
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-hosts", Method: http.MethodGet, Path: base, Tag: "Hosts",
		Summary: "List the hosts of the cluster", Scope: bothy.ScopeAdmin,
		Text: "By name, including lost ones, with what they last reported. Needs the operator's key.",
	}, func(ctx context.Context, _ *openapi.Empty) (*openapi.Answer[openapi.Items[bothy.ClusterHost]], error) {
		return many(svc.Hosts(ctx))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "invite-host", Method: http.MethodPost, Path: base, Tag: "Hosts",
		Summary: "Let another host join", Scope: bothy.ScopeAdmin, Status: http.StatusCreated, Secret: true,
		Text: "Makes a token that is good once, for an hour. It gives its holder the key of all secrets, so keep it as secret as that. Needs the operator's key.",
	}, func(ctx context.Context, _ *openapi.Empty) (*openapi.Answer[*bothy.HostInvitation], error) {
		return one(svc.InviteHost(ctx))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "update-host", Method: http.MethodPatch, Path: path, Tag: "Hosts",
		Summary: "Cordon or drain a host, or let it take sandboxes again", Scope: bothy.ScopeAdmin,
		Text: "A cordoned host gets no new sandboxes; those that it has continue. One that drains gives them to other hosts, too, one after the other: it is done when sandboxes is 0, and move_problem says why one could not be moved yet. Needs the operator's key.",
	}, func(ctx context.Context, in *hostUpdateInput) (*openapi.Answer[*bothy.ClusterHost], error) {
		return one(svc.UpdateHost(ctx, in.Host, in.Body))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "move-sandbox", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/move", Tag: "Hosts",
		Summary: "Move a sandbox to another host", Scope: bothy.ScopeAdmin,
		Text: "With its memory, processes, files and snapshots; a paused sandbox can be moved as well, and one of any project. New requests to it wait meanwhile, and none is lost; a call that has been in flight for more than 15 seconds is cut off, and so are connections to the outside, as in a pause. If it fails, the sandbox stays where it was, unchanged. Needs the operator's key.",
	}, func(ctx context.Context, in *sandboxMoveInput) (*openapi.Answer[*bothy.MovedSandbox], error) {
		var req bothy.SandboxMove
		if in.Body != nil {
			req = *in.Body
		}
		return one(svc.MoveSandbox(ctx, in.ID, req))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "remove-host", Method: http.MethodDelete, Path: path, Tag: "Hosts",
		Summary: "Remove a lost host", Scope: bothy.ScopeAdmin,
		Text: "One that lives, or still has sandboxes, is refused. Needs the operator's key.",
	}, func(ctx context.Context, in *hostInput) (*openapi.Empty, error) {
		return nil, svc.RemoveHost(ctx, in.Host)
	})
}
