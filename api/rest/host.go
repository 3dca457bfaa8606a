package rest

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

func (s *handlers) registerHost() {
	svc := s.services.Host
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "get-host", Method: http.MethodGet, Path: "/v1/host", Tag: "Limits",
		Summary: "Show the host", Scope: bothy.ScopeAdmin,
		Text: "Its capacity, what is kept ready, the engines, how long creating sandboxes took since the server was started, " +
			"and the findings of those checks of `bothy doctor` that start no sandbox, at most a minute old. Only for the default project, which is the operator's.",
	}, func(ctx context.Context, _ *struct{}) (*openapi.Answer[*bothy.Host], error) {
		return one(svc.Host(ctx))
	})
}
