package bothy

import (
	"context"
	"time"
)

// LinkKind is how a link is used.
type LinkKind string

// The kinds of links.
const (
	// LinkBrowser is opened in a browser, which keeps it in a cookie.
	LinkBrowser LinkKind = "browser"
	// LinkWebhook is called by programs: each request carries it in its path or in a
	// header, and is passed on as it is.
	LinkWebhook LinkKind = "webhook"
	// LinkCDP is the address of a browser for clients of the Chrome DevTools Protocol.
	LinkCDP LinkKind = "cdp"
)

// Link is the right to use one port of a sandbox without a key. It ends when it
// expires or is deleted, with its sandbox, and with the key that made it.
type Link struct {
	ID        string   `json:"id"`
	SandboxID string   `json:"sandbox_id"`
	Port      int      `json:"port"`
	Kind      LinkKind `json:"kind"`
	// KeepHost means that the server inside sees the link's host name in Host, instead
	// of localhost and its port.
	KeepHost bool `json:"keep_host,omitempty"`
	// URL is set only in the answer that creates the link.
	URL string `json:"url,omitempty"`
	// TokenID and TokenName are of the key that made the link.
	TokenID   string    `json:"token_id"`
	TokenName string    `json:"token_name,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`

	ProjectID string `json:"-"`
}

// LinkCreate is a request for a link.
type LinkCreate struct {
	Port int
	// Kind is LinkBrowser when empty.
	Kind LinkKind
	// KeepHost passes the link's host name on to the server inside.
	KeepHost bool
	// For is how long the link can be used, at most; an hour when zero.
	For time.Duration
}

// LinkService keeps the links to ports of sandboxes. A link's secret is not its
// business: that is for the door that hands links out.
type LinkService interface {
	CreateLink(ctx context.Context, sandboxID string, req LinkCreate) (*Link, error)
	// Links lists those of a sandbox that can still be used, newest first.
	Links(ctx context.Context, sandboxID string) ([]*Link, error)
	// DeleteLink ends a link and the connections made through it at once.
	DeleteLink(ctx context.Context, sandboxID, id string) error
	// HoldLink finds a link that has not ended: CodeUnauthenticated otherwise. As with
	// KeyHolder, end is called when it ends before release was called.
	HoldLink(ctx context.Context, id string, end func(cause error)) (l *Link, release func(), err error)
}
