package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/bothy-dev/bothy"
)

// Code is the server's bothy.CodeService.
type Code struct{ conn *conn }

func contextPath(id, contextID, rest string) string {
	return sandboxPath(id, "/contexts/", url.PathEscape(contextID), rest)
}

// RunCode implements bothy.CodeService.
func (c *Code) RunCode(ctx context.Context, id string, req bothy.CodeRequest) (*bothy.CodeResult, error) {
	return get[bothy.CodeResult](ctx, c.conn, http.MethodPost, sandboxPath(id, "/code"), nil, req)
}

// RunCodeStream implements bothy.CodeService.
func (c *Code) RunCodeStream(ctx context.Context, id string, req bothy.CodeRequest, fn func(bothy.CodeEvent) error) error {
	final := false
	err := stream(ctx, c.conn, http.MethodPost, sandboxPath(id, "/code"), nil, req, func(e bothy.CodeEvent) error {
		final = final || e.IsFinal
		return fn(e)
	})
	if err == nil && !final {
		return c.conn.brokenOff(ctx, io.ErrUnexpectedEOF)
	}
	return err
}

// CreateContext implements bothy.CodeService.
func (c *Code) CreateContext(ctx context.Context, id string, req bothy.CodeContextCreate) (*bothy.CodeContext, error) {
	return get[bothy.CodeContext](ctx, c.conn, http.MethodPost, sandboxPath(id, "/contexts"), nil, req)
}

// Contexts implements bothy.CodeService.
func (c *Code) Contexts(ctx context.Context, id string) ([]bothy.CodeContext, error) {
	return items[bothy.CodeContext](ctx, c.conn, http.MethodGet, sandboxPath(id, "/contexts"), nil, nil)
}

// DeleteContext implements bothy.CodeService.
func (c *Code) DeleteContext(ctx context.Context, id, contextID string) error {
	return c.conn.call(ctx, http.MethodDelete, contextPath(id, contextID, ""), nil, nil, nil)
}

// InterruptContext implements bothy.CodeService.
func (c *Code) InterruptContext(ctx context.Context, id, contextID string) error {
	return c.conn.call(ctx, http.MethodPost, contextPath(id, contextID, "/interrupt"), nil, nil, nil)
}

// RestartContext implements bothy.CodeService.
func (c *Code) RestartContext(ctx context.Context, id, contextID string) error {
	return c.conn.call(ctx, http.MethodPost, contextPath(id, contextID, "/restart"), nil, nil, nil)
}
