package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bothy-dev/bothy"
)

// Builder is the server's bothy.TemplateBuilder.
type Builder struct{ conn *conn }

func buildPath(id, rest string) string { return "/v1/templates/builds/" + url.PathEscape(id) + rest }

// UploadContext implements bothy.TemplateBuilder.
func (b *Builder) UploadContext(ctx context.Context, r io.Reader) (*bothy.BuildContext, error) {
	c := new(bothy.BuildContext)
	return c, b.conn.upload(ctx, http.MethodPost, "/v1/templates/contexts", nil, nil, r, c)
}

// StartBuild implements bothy.TemplateBuilder.
func (b *Builder) StartBuild(ctx context.Context, req bothy.BuildRequest) (*bothy.Build, error) {
	return get[bothy.Build](ctx, b.conn, http.MethodPost, "/v1/templates/builds", nil, req)
}

// Build implements bothy.TemplateBuilder.
func (b *Builder) Build(ctx context.Context, id string) (*bothy.Build, error) {
	return get[bothy.Build](ctx, b.conn, http.MethodGet, buildPath(id, ""), nil, nil)
}

// Builds implements bothy.TemplateBuilder.
func (b *Builder) Builds(ctx context.Context) ([]*bothy.Build, error) {
	return items[*bothy.Build](ctx, b.conn, http.MethodGet, "/v1/templates/builds", nil, nil)
}

// BuildLog implements bothy.TemplateBuilder.
func (b *Builder) BuildLog(ctx context.Context, id string, from int64, fn func(int64, bothy.BuildEvent) error) error {
	n := from
	return stream(ctx, b.conn, http.MethodGet, buildPath(id, "/logs"), url.Values{"from": {strconv.FormatInt(from, 10)}}, nil, func(e bothy.BuildEvent) error {
		err := fn(n, e)
		n++
		return err
	})
}

// CancelBuild implements bothy.TemplateBuilder.
func (b *Builder) CancelBuild(ctx context.Context, id string) (*bothy.Build, error) {
	return get[bothy.Build](ctx, b.conn, http.MethodDelete, buildPath(id, ""), nil, nil)
}
