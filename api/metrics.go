package api

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
)

func (s *handlers) registerMetrics() {
	svc := s.services.Metrics
	if svc == nil {
		return
	}
	add(s.registry, Operation{
		ID: "get-metrics", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/metrics", Tag: "Sandboxes",
		Summary: "Show what a sandbox uses", Scope: bothy.ScopeSandboxesRead,
		Text: "CPU, memory, disk, processes and network bytes now, and what holds the sandbox awake.",
	}, func(ctx context.Context, in *idInput) (*answer[*bothy.Metrics], error) {
		return one(svc.Metrics(ctx, in.ID))
	})
}
