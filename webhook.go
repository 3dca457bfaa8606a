package bothy

import (
	"context"
	"time"
)

// WebhookFormat is the format of a webhook's requests.
type WebhookFormat string

// The formats of webhooks.
const (
	// WebhookStandard sends events as GET /v1/events has them, signed as the
	// specification Standard Webhooks says.
	WebhookStandard WebhookFormat = "standard"
	// WebhookE2B sends what E2B's service would.
	WebhookE2B WebhookFormat = "e2b"
)

// Webhook has the events of a project sent to a URL, in their order, each at least
// once, until it is deleted.
type Webhook struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	URL  string `json:"url"`
	// Events are the types that are sent; empty means all of them.
	Events  []string      `json:"events,omitempty"`
	Enabled bool          `json:"enabled"`
	Format  WebhookFormat `json:"format"`
	// Secret signs requests. It is set only in the answer that creates the webhook.
	Secret    string    `json:"secret,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	WebhookState

	ProjectID string `json:"-"`
}

// WebhookState is how far a webhook's deliveries have come.
type WebhookState struct {
	// LastEventID is the last event that was dealt with.
	LastEventID int64 `json:"last_event_id"`
	// DeliveredAt is when the receiver last took one.
	DeliveredAt *time.Time `json:"delivered_at,omitempty"`
	// FailingSince and LastError are set from a failed attempt to the next one that
	// succeeds. NextAttemptAt is when it is retried.
	FailingSince  *time.Time `json:"failing_since,omitempty"`
	LastError     string     `json:"last_error,omitempty"`
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	// DisabledReason says why the server has switched the webhook off.
	DisabledReason string `json:"disabled_reason,omitempty"`
	// Refused counts the events that the receiver did not want, and that were given up.
	Refused int64 `json:"refused,omitempty"`
}

// WebhookCreate is a request for a webhook.
type WebhookCreate struct {
	Name   string   `json:"name,omitempty"`
	URL    string   `json:"url"`
	Events []string `json:"events,omitempty"`
	// Secret is made by the server when empty.
	Secret string `json:"secret,omitempty"`
	// Disabled creates a webhook that sends nothing until it is enabled.
	Disabled bool          `json:"disabled,omitempty"`
	Format   WebhookFormat `json:"format,omitempty"`
}

// WebhookUpdate changes what is not nil.
type WebhookUpdate struct {
	Name    *string   `json:"name,omitempty"`
	URL     *string   `json:"url,omitempty"`
	Events  *[]string `json:"events,omitempty"`
	Secret  *string   `json:"secret,omitempty"`
	Enabled *bool     `json:"enabled,omitempty"`
}

// WebhookTest is the result of a test.
type WebhookTest struct {
	// Status is the receiver's HTTP status, 0 when there was no answer.
	Status int `json:"status,omitempty"`
	// Error says why the event counts as not delivered.
	Error        string  `json:"error,omitempty"`
	Milliseconds float64 `json:"milliseconds"`
}

// WebhookService keeps a project's webhooks.
type WebhookService interface {
	CreateWebhook(ctx context.Context, req WebhookCreate) (*Webhook, error)
	// Webhooks lists the caller's, oldest first.
	Webhooks(ctx context.Context) ([]*Webhook, error)
	Webhook(ctx context.Context, id string) (*Webhook, error)
	UpdateWebhook(ctx context.Context, id string, u WebhookUpdate) (*Webhook, error)
	DeleteWebhook(ctx context.Context, id string) error
	// TestWebhook sends an event of the type webhook.test now, once.
	TestWebhook(ctx context.Context, id string) (*WebhookTest, error)
}
