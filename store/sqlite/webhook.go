package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bothy-dev/bothy"
)

// webhookRecord is what the `record` column of webhooks holds. The state has a
// column of its own.
type webhookRecord struct {
	bothy.Webhook
	ProjectID    string `json:"_project,omitempty"`
	SealedSecret []byte `json:"_sealed_secret,omitempty"`
}

func decodeWebhook(record, state string) (*bothy.Webhook, error) {
	var r webhookRecord
	if err := json.Unmarshal([]byte(record), &r); err != nil {
		return nil, err
	}
	w := r.Webhook
	w.ProjectID, w.SealedSecret = r.ProjectID, r.SealedSecret
	return &w, json.Unmarshal([]byte(state), &w.WebhookState)
}

// PutWebhook implements store.Store.
func (s *Store) PutWebhook(ctx context.Context, w *bothy.Webhook) error {
	kept := webhookRecord{Webhook: *w, ProjectID: w.ProjectID, SealedSecret: w.SealedSecret}
	kept.Secret, kept.WebhookState = "", bothy.WebhookState{}
	record, err := encode(kept)
	if err != nil {
		return fmt.Errorf("store: put webhook %s: %w", w.ID, err)
	}
	state, err := encode(w.WebhookState)
	if err != nil {
		return fmt.Errorf("store: put webhook %s: %w", w.ID, err)
	}
	_, err = s.exec(ctx, "put webhook", s.stmt.putWebhook, w.ID, w.ProjectID, nanos(w.CreatedAt), record, state)
	return err
}

// Webhook implements store.Store.
func (s *Store) Webhook(ctx context.Context, projectID, id string) (*bothy.Webhook, error) {
	var record, state string
	err := s.stmt.webhook.QueryRowContext(ctx, projectID, id).Scan(&record, &state)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, noWebhook(id)
	}
	if err != nil {
		return nil, fmt.Errorf("store: get webhook: %w", err)
	}
	return decodeWebhook(record, state)
}

func noWebhook(id string) error {
	return bothy.Errorf(bothy.CodeNotFound, "there is no webhook %q", id).
		WithHint("List webhooks with `bothy webhook ls` or GET /v1/webhooks.")
}

// Webhooks implements store.Store.
func (s *Store) Webhooks(ctx context.Context, projectID string) ([]*bothy.Webhook, error) {
	rows, err := s.stmt.webhooks.QueryContext(ctx, projectID)
	if err != nil {
		return nil, fmt.Errorf("store: list webhooks: %w", err)
	}
	defer rows.Close()
	var out []*bothy.Webhook
	for rows.Next() {
		var record, state string
		if err := rows.Scan(&record, &state); err != nil {
			return nil, fmt.Errorf("store: list webhooks: %w", err)
		}
		w, err := decodeWebhook(record, state)
		if err != nil {
			return nil, fmt.Errorf("store: list webhooks: %w", err)
		}
		out = append(out, w)
	}
	return out, rows.Err()
}

// SetWebhookState implements store.Store.
func (s *Store) SetWebhookState(ctx context.Context, id string, st bothy.WebhookState) error {
	state, err := encode(st)
	if err != nil {
		return fmt.Errorf("store: set the state of webhook %s: %w", id, err)
	}
	_, err = s.exec(ctx, "set webhook state", s.stmt.setWebhookState, state, id)
	return err
}

// DeleteWebhook implements store.Store.
func (s *Store) DeleteWebhook(ctx context.Context, projectID, id string) error {
	n, err := s.execCount(ctx, "delete webhook", s.stmt.deleteWebhook, projectID, id)
	if err == nil && n == 0 {
		return noWebhook(id)
	}
	return err
}
