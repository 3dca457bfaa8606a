package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type historyInput struct {
	ID   string    `path:"id" doc:"The sandbox's id."`
	From time.Time `query:"from" doc:"Only what was measured from this time on."`
	To   time.Time `query:"to" doc:"Only what was measured until this time."`
}

func (s *handlers) registerMetrics() {
	svc := s.services.Metrics
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "get-metrics", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/metrics", Tag: "Sandboxes",
		Summary: "Show what a sandbox uses", Scope: bothy.ScopeSandboxesRead,
		Text: "Current CPU, memory, disk, processes and network bytes, and what keeps the sandbox awake.",
	}, func(ctx context.Context, in *openapi.IDInput) (*openapi.Answer[*bothy.Metrics], error) {
		return one(svc.Metrics(ctx, in.ID))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "metrics-history", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/metrics/history", Tag: "Sandboxes",
		Summary: "Show what a sandbox has used", Scope: bothy.ScopeSandboxesRead,
		Text: "Measurements taken every ten seconds, oldest first. At most the last half hour is kept, in memory: " +
			"they start over when a sandbox is resumed or the server is restarted, and there are none for a sandbox that is not running.",
	}, func(ctx context.Context, in *historyInput) (*openapi.Answer[openapi.Items[*bothy.Metrics]], error) {
		return many(svc.MetricsHistory(ctx, in.ID, in.From, in.To))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-metrics", Method: http.MethodGet, Path: "/v1/metrics", Tag: "Sandboxes",
		Summary: "Show what all sandboxes use", Scope: bothy.ScopeSandboxesRead,
		Text: "The latest measurement of every running sandbox of the project; they are measured every ten seconds, for the first time within ten.",
	}, func(ctx context.Context, _ *openapi.Empty) (*openapi.Answer[openapi.Items[*bothy.SandboxMetrics]], error) {
		return many(svc.LatestMetrics(ctx))
	})
}
