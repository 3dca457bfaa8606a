package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/record"
)

// PutWebhook implements store.Store.
func (s *Store) PutWebhook(ctx context.Context, w *store.Webhook) error {
	text, state, err := record.EncodeWebhook(w)
	if err != nil {
		return fmt.Errorf("store: put webhook %s: %w", w.ID, err)
	}
	_, err = s.change(ctx, "put webhook", whole, do(`INSERT INTO webhooks (id, project, created_at, record, state) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (id) DO UPDATE SET record = excluded.record`, w.ID, w.ProjectID, nanos(w.CreatedAt), text, state))
	return err
}

func scanWebhook(row pgx.CollectableRow) (*store.Webhook, error) {
	var text, state string
	if err := row.Scan(&text, &state); err != nil {
		return nil, err
	}
	return record.DecodeWebhook(text, state)
}

// Webhook implements store.Store.
func (s *Store) Webhook(ctx context.Context, projectID, id string) (*store.Webhook, error) {
	w, found, err := first(ctx, s, "get webhook", `SELECT record, state FROM webhooks WHERE project = $1 AND id = $2`, []any{projectID, id}, scanWebhook)
	if err == nil && !found {
		return nil, noWebhook(id)
	}
	return w, err
}

func noWebhook(id string) error {
	return bothy.Errorf(bothy.CodeNotFound, "there is no webhook %q", id).
		WithHint("List webhooks with `bothy webhook ls` or GET /v1/webhooks.")
}

// Webhooks implements store.Store.
func (s *Store) Webhooks(ctx context.Context, projectID string) ([]*store.Webhook, error) {
	return list(ctx, s, "list webhooks", `SELECT record, state FROM webhooks WHERE $1 = '' OR project = $1 ORDER BY created_at, id`, []any{projectID}, scanWebhook)
}

// SetWebhookState implements store.Store.
func (s *Store) SetWebhookState(ctx context.Context, id string, st bothy.WebhookState) error {
	state, err := record.EncodeWebhookState(st)
	if err != nil {
		return fmt.Errorf("store: set the state of webhook %s: %w", id, err)
	}
	_, err = s.change(ctx, "set webhook state", light, do(`UPDATE webhooks SET state = $1 WHERE id = $2`, state, id))
	return err
}

// DeleteWebhook implements store.Store.
func (s *Store) DeleteWebhook(ctx context.Context, projectID, id string) error {
	n, err := s.change(ctx, "delete webhook", once, do(`DELETE FROM webhooks WHERE project = $1 AND id = $2`, projectID, id))
	if err == nil && n == 0 {
		return noWebhook(id)
	}
	return err
}
