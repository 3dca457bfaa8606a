package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/bothy-dev/bothy"
)

// Webhooks is the server's bothy.WebhookService.
type Webhooks struct{ conn *conn }

var _ bothy.WebhookService = (*Webhooks)(nil)

const webhooksPath = "/v1/webhooks"

func webhookPath(id string) string { return webhooksPath + "/" + url.PathEscape(id) }

// CreateWebhook implements bothy.WebhookService. Only this answer contains the webhook's secret.
func (w *Webhooks) CreateWebhook(ctx context.Context, req bothy.WebhookCreate) (*bothy.Webhook, error) {
	return get[bothy.Webhook](ctx, w.conn, http.MethodPost, webhooksPath, nil, req)
}

// Webhooks implements bothy.WebhookService.
func (w *Webhooks) Webhooks(ctx context.Context) ([]*bothy.Webhook, error) {
	return items[*bothy.Webhook](ctx, w.conn, http.MethodGet, webhooksPath, nil, nil)
}

// Webhook implements bothy.WebhookService.
func (w *Webhooks) Webhook(ctx context.Context, id string) (*bothy.Webhook, error) {
	return get[bothy.Webhook](ctx, w.conn, http.MethodGet, webhookPath(id), nil, nil)
}

// UpdateWebhook implements bothy.WebhookService.
func (w *Webhooks) UpdateWebhook(ctx context.Context, id string, u bothy.WebhookUpdate) (*bothy.Webhook, error) {
	return get[bothy.Webhook](ctx, w.conn, http.MethodPatch, webhookPath(id), nil, u)
}

// DeleteWebhook implements bothy.WebhookService.
func (w *Webhooks) DeleteWebhook(ctx context.Context, id string) error {
	return w.conn.call(ctx, http.MethodDelete, webhookPath(id), nil, nil, nil)
}

// TestWebhook implements bothy.WebhookService.
func (w *Webhooks) TestWebhook(ctx context.Context, id string) (*bothy.WebhookTest, error) {
	return get[bothy.WebhookTest](ctx, w.conn, http.MethodPost, webhookPath(id)+"/test", nil, nil)
}
