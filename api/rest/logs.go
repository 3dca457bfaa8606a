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
			Text: "The output of commands that were started through the API, as far as the sandbox still buffers it, " +
				"by command, in the order in which they were started.",
		}, func(ctx context.Context, in *logsInput) (*openapi.Answer[*bothy.Logs], error) {
			return one(svc.Logs(ctx, in.ID, in.PID))
		})
	}
	if svc := s.services.Limits; svc != nil {
		openapi.Add(s.registry, middleware.Operation{
			ID: "get-limits", Method: http.MethodGet, Path: "/v1/limits", Tag: "Limits",
			Summary: "Show the project's limits and what is in use", Scope: bothy.ScopeSandboxesRead,
			Text: "A limit of null means no limit.",
		}, func(ctx context.Context, _ *struct{}) (*openapi.Answer[*bothy.PlanLimits], error) {
			return one(svc.Limits(ctx))
		})
	}
}
