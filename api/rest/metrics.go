package rest

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

func (s *handlers) registerMetrics() {
	svc := s.services.Metrics
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "get-metrics", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/metrics", Tag: "Sandboxes",
		Summary: "Show what a sandbox uses", Scope: bothy.ScopeSandboxesRead,
		Text: "CPU, memory, disk, processes and network bytes now, and what holds the sandbox awake.",
	}, func(ctx context.Context, in *openapi.IDInput) (*openapi.Answer[*bothy.Metrics], error) {
		return one(svc.Metrics(ctx, in.ID))
	})
}
