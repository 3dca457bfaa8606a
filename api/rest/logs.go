package rest

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type logsInput struct {
	ID  string `path:"id" doc:"The sandbox's id."`
	PID int    `query:"pid" minimum:"1" doc:"Only the output of this process."`
}

func (s *handlers) registerLogs() {
	if svc := s.services.Logs; svc != nil {
		openapi.Add(s.registry, middleware.Operation{
			ID: "get-logs", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/logs", Tag: "Commands",
			Summary: "Show the output of commands", Scope: bothy.ScopeSandboxesRead,
			Text: "What the commands that were started through the API have written, as far as the sandbox still holds it, " +
				"by command in the order of their start.",
		}, func(ctx context.Context, in *logsInput) (*openapi.Answer[*bothy.Logs], error) {
			return one(svc.Logs(ctx, in.ID, in.PID))
		})
	}
	if svc := s.services.Limits; svc != nil {
		openapi.Add(s.registry, middleware.Operation{
			ID: "get-limits", Method: http.MethodGet, Path: "/v1/limits", Tag: "Limits",
			Summary: "Show what the project may use, and what is in use", Scope: bothy.ScopeSandboxesRead,
			Text: "A limit that is null is none.",
		}, func(ctx context.Context, _ *struct{}) (*openapi.Answer[*bothy.PlanLimits], error) {
			return one(svc.Limits(ctx))
		})
	}
}
