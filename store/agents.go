package store

import "github.com/bothy-dev/bothy"

// AgentAttachment is the row of an attachment: what clients see, and what only the server
// needs.
type AgentAttachment struct {
	bothy.AgentAttachment

	// Sealed contains the environment key and the values of secrets, encrypted with
	// secrets.key.
	Sealed []byte `json:"_sealed,omitempty"`
}
