package apitest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/bothy-dev/bothy"
)

// Webhooks is a bothy.WebhookService that sends nothing.
type Webhooks struct {
	mu  sync.Mutex
	all []*bothy.Webhook
}

// CreateWebhook implements bothy.WebhookService.
func (w *Webhooks) CreateWebhook(ctx context.Context, req bothy.WebhookCreate) (*bothy.Webhook, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	h := &bothy.Webhook{
		ID: fmt.Sprintf("whk_%d", len(w.all)+1), Name: req.Name, URL: req.URL, Events: req.Events, Enabled: !req.Disabled,
		Format: bothy.WebhookStandard, ProjectID: caller.ProjectID,
	}
	w.all = append(w.all, h)
	shown := *h
	shown.Secret = "whsec_c2VjcmV0"
	return &shown, nil
}

// Webhooks implements bothy.WebhookService.
func (w *Webhooks) Webhooks(ctx context.Context) ([]*bothy.Webhook, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var mine []*bothy.Webhook
	for _, h := range w.all {
		if h.ProjectID == caller.ProjectID {
			mine = append(mine, h)
		}
	}
	return mine, nil
}

// Webhook implements bothy.WebhookService.
func (w *Webhooks) Webhook(ctx context.Context, id string) (*bothy.Webhook, error) {
	all, err := w.Webhooks(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(all, func(h *bothy.Webhook) bool { return h.ID == id }); i >= 0 {
		return all[i], nil
	}
	return nil, bothy.Errorf(bothy.CodeNotFound, "there is no webhook %q", id)
}

// UpdateWebhook implements bothy.WebhookService.
func (w *Webhooks) UpdateWebhook(ctx context.Context, id string, u bothy.WebhookUpdate) (*bothy.Webhook, error) {
	h, err := w.Webhook(ctx, id)
	if err == nil && u.Enabled != nil {
		h.Enabled = *u.Enabled
	}
	return h, err
}

// DeleteWebhook implements bothy.WebhookService.
func (w *Webhooks) DeleteWebhook(ctx context.Context, id string) error {
	h, err := w.Webhook(ctx, id)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = slices.DeleteFunc(w.all, func(x *bothy.Webhook) bool { return x == h })
	return nil
}

// TestWebhook implements bothy.WebhookService.
func (w *Webhooks) TestWebhook(ctx context.Context, id string) (*bothy.WebhookTest, error) {
	_, err := w.Webhook(ctx, id)
	return &bothy.WebhookTest{Status: 204, Milliseconds: 1}, err
}
