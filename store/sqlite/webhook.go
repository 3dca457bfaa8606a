package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

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
	_, err = s.exec(ctx, "put webhook", s.stmt.putWebhook, w.ID, w.ProjectID, nanos(w.CreatedAt), text, state)
	return err
}

// Webhook implements store.Store.
func (s *Store) Webhook(ctx context.Context, projectID, id string) (*store.Webhook, error) {
	var text, state string
	err := s.stmt.webhook.QueryRowContext(ctx, projectID, id).Scan(&text, &state)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, noWebhook(id)
	}
	if err != nil {
		return nil, fmt.Errorf("store: get webhook: %w", err)
	}
	return record.DecodeWebhook(text, state)
}

func noWebhook(id string) error {
	return bothy.Errorf(bothy.CodeNotFound, "there is no webhook %q", id).
		WithHint("List webhooks with `bothy webhook ls` or GET /v1/webhooks.")
}

// Webhooks implements store.Store.
func (s *Store) Webhooks(ctx context.Context, projectID string) ([]*store.Webhook, error) {
	rows, err := s.stmt.webhooks.QueryContext(ctx, projectID)
	if err != nil {
		return nil, fmt.Errorf("store: list webhooks: %w", err)
	}
	defer rows.Close()
	var out []*store.Webhook
	for rows.Next() {
		var text, state string
		if err := rows.Scan(&text, &state); err != nil {
			return nil, fmt.Errorf("store: list webhooks: %w", err)
		}
		w, err := record.DecodeWebhook(text, state)
		if err != nil {
			return nil, fmt.Errorf("store: list webhooks: %w", err)
		}
		out = append(out, w)
	}
	return out, rows.Err()
}

// SetWebhookState implements store.Store.
func (s *Store) SetWebhookState(ctx context.Context, id string, st bothy.WebhookState) error {
	state, err := record.EncodeWebhookState(st)
	if err != nil {
		return fmt.Errorf("store: set the state of webhook %s: %w", id, err)
	}
	_, err = s.exec(ctx, "set webhook state", s.stmt.setWebhookState, state, id)
	return err
}

// DeleteWebhook implements store.Store.
func (s *Store) DeleteWebhook(ctx context.Context, projectID, id string) error {
	n, err := s.execReserved(ctx, "delete webhook", s.stmt.deleteWebhook, projectID, id)
	if err == nil && n == 0 {
		return noWebhook(id)
	}
	return err
}
