package rest

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type captureInput struct {
	ID   string `path:"id" doc:"The sandbox's id."`
	Body bothy.TemplateCapture
}

func (s *handlers) registerCapture() {
	svc := s.services.Capturer
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "create-template", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/template", Tag: "Templates",
		Summary: "Make a template from a sandbox", Scope: bothy.ScopeTemplatesWrite, Status: http.StatusCreated,
		Text: "New sandboxes start from its files, or, with `memory`, with its running processes, too. The sandbox keeps running, or stays paused. " +
			"The template belongs to the project; templates of the operator's project are for all. The key needs `sandboxes:write`, too.",
	}, func(ctx context.Context, in *captureInput) (*openapi.Answer[*bothy.Template], error) {
		return one(svc.CreateTemplate(ctx, in.ID, in.Body))
	})
}
