package store

import "github.com/bothy-dev/bothy"

// AgentAttachment is the row of an attachment: what clients see of it, and what only the
// server needs.
type AgentAttachment struct {
	bothy.AgentAttachment

	// Sealed holds the environment key and the values of secrets, encrypted with the
	// server's own key.
	Sealed []byte `json:"_sealed,omitempty"`
}
