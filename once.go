package bothy

import (
	"context"
	"sync/atomic"
)

// Once is a request that carries an idempotency key: what it asks for is done at most once.
type Once struct {
	// Key is the key, and Print identifies what the request asks for: a key belongs to one
	// request.
	Key, Print string

	begun atomic.Bool
}

type onceKey struct{}

// WithOnce says that ctx is of a request with an idempotency key.
func WithOnce(ctx context.Context, o *Once) context.Context {
	return context.WithValue(ctx, onceKey{}, o)
}

// OnceFrom returns what was said, or nil.
func OnceFrom(ctx context.Context) *Once {
	o, _ := ctx.Value(onceKey{}).(*Once)
	return o
}

// Begun notes that what a request asks for begins now: if it fails from here on, it may have had
// effects, and is not done again under its key. NotBegun takes that back, once it is known that
// there were none.
func Begun(ctx context.Context) { OnceFrom(ctx).set(true) }

// NotBegun is explained at Begun.
func NotBegun(ctx context.Context) { OnceFrom(ctx).set(false) }

func (o *Once) set(begun bool) {
	if o != nil {
		o.begun.Store(begun)
	}
}

// HasBegun reports whether it was noted that the request has begun.
func (o *Once) HasBegun() bool { return o.begun.Load() }
