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
		Text: "By name, those that are lost among them, with what they said of themselves last. Needs the operator's key.",
	}, func(ctx context.Context, _ *openapi.Empty) (*openapi.Answer[openapi.Items[bothy.ClusterHost]], error) {
		all, err := svc.Hosts(ctx)
		if err != nil {
			return nil, err
		}
		return openapi.AnswerList(all), nil
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "invite-host", Method: http.MethodPost, Path: base, Tag: "Hosts",
		Summary: "Let another host join", Scope: bothy.ScopeAdmin, Status: http.StatusCreated, Secret: true,
		Text: "Makes a token that is good once, for an hour. Whoever has it gets the key of all secrets, so keep it as you keep that. Needs the operator's key.",
	}, func(ctx context.Context, _ *openapi.Empty) (*openapi.Answer[*bothy.HostInvitation], error) {
		return one(svc.InviteHost(ctx))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "update-host", Method: http.MethodPatch, Path: path, Tag: "Hosts",
		Summary: "Cordon a host, or have it take sandboxes again", Scope: bothy.ScopeAdmin,
		Text: "A cordoned host gets no new sandboxes; those that it has continue. Needs the operator's key.",
	}, func(ctx context.Context, in *hostUpdateInput) (*openapi.Answer[*bothy.ClusterHost], error) {
		return one(svc.SetHostState(ctx, in.Host, in.Body.State))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "remove-host", Method: http.MethodDelete, Path: path, Tag: "Hosts",
		Summary: "Forget a host that is lost", Scope: bothy.ScopeAdmin,
		Text: "One that lives, or still has sandboxes, is refused. Needs the operator's key.",
	}, func(ctx context.Context, in *hostInput) (*openapi.Empty, error) {
		return nil, svc.RemoveHost(ctx, in.Host)
	})
}
