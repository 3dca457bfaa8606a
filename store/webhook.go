package store

import "github.com/bothy-dev/bothy"

// Webhook is the row of a webhook: what clients see, and what only the server needs.
type Webhook struct {
	bothy.Webhook

	// SealedSecret is the secret, encrypted with secrets.key.
	SealedSecret []byte `json:"_sealed_secret,omitempty"`
}
