package store

import "github.com/bothy-dev/bothy"

// AgentAttachment is the row of an attachment: what clients see, and what only the server
// needs.
type AgentAttachment struct {
	bothy.AgentAttachment

	// Sealed contains the environment key and the values of secrets, encrypted with
	// secrets.key.
	Sealed []byte `json:"_sealed,omitempty"`
	// TokenID is the key that made the attachment, or "" if it is not known.
	TokenID string `json:"_token_id,omitempty"`
}
