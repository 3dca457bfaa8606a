package store

import "time"

// Login is a browser's login, or a code for logging in once. Only the hash of its secret is
// stored.
type Login struct {
	Hash      string
	ProjectID string
	TokenID   string
	// Code marks a code.
	Code      bool
	CreatedAt time.Time
	ExpiresAt time.Time
}

// LoginBounds limit how many logins, and how many codes, are stored.
type LoginBounds struct {
	// PerToken limits those of one key, and All the total: beyond that, the project with the most
	// loses its oldest.
	PerToken, All int
}
