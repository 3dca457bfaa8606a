package middleware

import "context"

// Peer is what another host of a cluster reports about a request that it forwards, which it has
// checked like any request from outside.
type Peer struct {
	// Remote and Scheme are the request's origin.
	Remote, Scheme string
	// Project and TokenID are those of the key that admits it, if it has no key itself.
	Project, TokenID string
}

type peerKey struct{}

// WithPeer marks a request as coming from another host. Only code that has authenticated
// the other end of the connection may call it.
func WithPeer(ctx context.Context, p Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, &p)
}

// PeerFrom returns the peer of a request, or nil.
func PeerFrom(ctx context.Context) *Peer {
	p, _ := ctx.Value(peerKey{}).(*Peer)
	return p
}
