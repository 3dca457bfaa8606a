package bothy

import (
	"context"
	"sync/atomic"
)

type memoryKey struct{}

// A MemoryAccount has the server's memory that a request holds.
type MemoryAccount interface {
	// Hold reserves n more bytes. It may wait.
	Hold(ctx context.Context, n int64) error
	// Give releases n bytes before the request ends.
	Give(n int64)
}

// WithMemoryAccount returns a context in which memory is taken from an account.
func WithMemoryAccount(ctx context.Context, a MemoryAccount) context.Context {
	return context.WithValue(ctx, memoryKey{}, a)
}

// WithMemory returns a context in which take is asked before the server holds much
// memory for the request.
func WithMemory(ctx context.Context, take func(ctx context.Context, bytes int64) error) context.Context {
	return WithMemoryAccount(ctx, taker(take))
}

type taker func(ctx context.Context, bytes int64) error

func (t taker) Hold(ctx context.Context, n int64) error { return t(ctx, n) }
func (t taker) Give(int64)                              {}

// TakeMemory reserves n more bytes of the server's memory for the request, until the
// request ends. It may wait. CodeRateLimited means that they were refused; outside
// requests everything is allowed.
func TakeMemory(ctx context.Context, bytes int64) error {
	a, ok := ctx.Value(memoryKey{}).(MemoryAccount)
	if !ok || bytes <= 0 {
		return nil
	}
	return a.Hold(ctx, bytes)
}

// GiveMemory gives back bytes that TakeMemory has reserved, before the request ends.
func GiveMemory(ctx context.Context, bytes int64) {
	if a, ok := ctx.Value(memoryKey{}).(MemoryAccount); ok && bytes > 0 {
		a.Give(bytes)
	}
}

// WithMemoryOf returns ctx, in which memory is taken for the request of another.
func WithMemoryOf(ctx, request context.Context) context.Context {
	a, ok := request.Value(memoryKey{}).(MemoryAccount)
	if !ok {
		return ctx
	}
	return WithMemoryAccount(ctx, a)
}

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
