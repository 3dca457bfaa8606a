package bothy

import "context"

type memoryKey struct{}

// WithMemory returns a context in which take is asked before the server holds much
// memory for the request.
func WithMemory(ctx context.Context, take func(ctx context.Context, bytes int64) error) context.Context {
	return context.WithValue(ctx, memoryKey{}, take)
}

// TakeMemory reserves n more bytes of the server's memory for the request, until the
// request ends. It may wait. CodeRateLimited means that they were refused; outside
// requests everything is allowed.
func TakeMemory(ctx context.Context, bytes int64) error {
	take, _ := ctx.Value(memoryKey{}).(func(context.Context, int64) error)
	if take == nil || bytes <= 0 {
		return nil
	}
	return take(ctx, bytes)
}

// WithMemoryOf returns ctx, in which memory is taken for the request of another.
func WithMemoryOf(ctx, request context.Context) context.Context {
	take, _ := request.Value(memoryKey{}).(func(context.Context, int64) error)
	if take == nil {
		return ctx
	}
	return WithMemory(ctx, take)
}
