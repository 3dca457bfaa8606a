package store

import "time"

// Login is that of a browser, or a code that a browser can log in with once. What the browser
// holds is not kept, but its hash.
type Login struct {
	Hash      string
	ProjectID string
	TokenID   string
	// Code says that it is a code.
	Code      bool
	CreatedAt time.Time
	ExpiresAt time.Time
}

// LoginBounds bound how many logins, and how many codes, are kept.
type LoginBounds struct {
	// PerToken are for one key, and All for all of them.
	PerToken, All int
}
