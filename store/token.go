package store

import "github.com/bothy-dev/bothy"

// Token is the row of a token: what clients see of it, and what only the server needs.
type Token struct {
	bothy.Token

	// Hash is the SHA-256 of the key, in hex.
	Hash string `json:"_hash"`
}
