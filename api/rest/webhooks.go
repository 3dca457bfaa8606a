package rest

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type (
	webhookInput struct {
		Body bothy.WebhookCreate
	}
	webhookIDInput struct {
		ID string `path:"id" doc:"The webhook's id."`
	}
	webhookUpdateInput struct {
		ID   string `path:"id" doc:"The webhook's id."`
		Body bothy.WebhookUpdate
	}
)

func (s *handlers) registerWebhooks() {
	svc := s.services.Webhooks
	if svc == nil {
		return
	}
	const base = "/v1/webhooks"
	openapi.Add(s.registry, middleware.Operation{
		ID: "create-webhook", Method: http.MethodPost, Path: base, Tag: "Webhooks",
		Summary: "Create a webhook", Scope: bothy.ScopeAdmin, Status: http.StatusCreated, Secret: true,
		Text: "The project's events from now on are sent to its `url`, one after the other, each as the body of a POST and as GET /v1/events " +
			"shows it. Requests are signed with `secret`, which is shown only in this answer. Failed deliveries are retried for a day.",
	}, func(ctx context.Context, in *webhookInput) (*openapi.Answer[*bothy.Webhook], error) {
		return one(svc.CreateWebhook(ctx, in.Body))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-webhooks", Method: http.MethodGet, Path: base, Tag: "Webhooks",
		Summary: "List webhooks", Scope: bothy.ScopeAdmin, Text: "Only the project's, oldest first.",
	}, func(ctx context.Context, _ *openapi.Empty) (*openapi.Answer[openapi.Items[*bothy.Webhook]], error) {
		return many(svc.Webhooks(ctx))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "get-webhook", Method: http.MethodGet, Path: base + "/{id}", Tag: "Webhooks",
		Summary: "Get a webhook", Scope: bothy.ScopeAdmin, Text: "With the state of its deliveries, and why they fail.",
	}, func(ctx context.Context, in *webhookIDInput) (*openapi.Answer[*bothy.Webhook], error) {
		return one(svc.Webhook(ctx, in.ID))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "update-webhook", Method: http.MethodPatch, Path: base + "/{id}", Tag: "Webhooks",
		Summary: "Change a webhook", Scope: bothy.ScopeAdmin,
		Text: "Pending events are retried immediately. One that is enabled again continues with the events it missed, as far back as they are kept.",
	}, func(ctx context.Context, in *webhookUpdateInput) (*openapi.Answer[*bothy.Webhook], error) {
		return one(svc.UpdateWebhook(ctx, in.ID, in.Body))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "delete-webhook", Revokes: true, Method: http.MethodDelete, Path: base + "/{id}", Tag: "Webhooks",
		Summary: "Delete a webhook", Scope: bothy.ScopeAdmin,
	}, func(ctx context.Context, in *webhookIDInput) (*openapi.Empty, error) {
		return nil, svc.DeleteWebhook(ctx, in.ID)
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "test-webhook", Method: http.MethodPost, Path: base + "/{id}/test", Tag: "Webhooks",
		Summary: "Test a webhook", Scope: bothy.ScopeAdmin,
		Text: "Sends an event of the type webhook.test, once, even if the webhook is disabled, and shows the receiver's answer.",
	}, func(ctx context.Context, in *webhookIDInput) (*openapi.Answer[*bothy.WebhookTest], error) {
		return one(svc.TestWebhook(ctx, in.ID))
	})
}
