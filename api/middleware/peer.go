package middleware

import "context"

// Peer is what another host of a cluster says of a request that it passes on, which has been
// checked there as one from outside is.
type Peer struct {
	// Remote and Scheme are where the request came from, and how.
	Remote, Scheme string
	// Project and TokenID are the key's that lets it in, where it brings none itself.
	Project, TokenID string
}

type peerKey struct{}

// WithPeer says that a request comes from another host. Only what has checked the other end
// of the connection may say so.
func WithPeer(ctx context.Context, p Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, &p)
}

// PeerFrom returns what was said, or nil.
func PeerFrom(ctx context.Context) *Peer {
	p, _ := ctx.Value(peerKey{}).(*Peer)
	return p
}
