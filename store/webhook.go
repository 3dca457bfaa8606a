package store

import "github.com/bothy-dev/bothy"

// Webhook is the row of a webhook: what clients see of it, and what only the server needs.
type Webhook struct {
	bothy.Webhook

	// SealedSecret is the secret, encrypted with the server's own key.
	SealedSecret []byte `json:"_sealed_secret,omitempty"`
}
