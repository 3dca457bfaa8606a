package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/bothy-dev/bothy"
)

// Links is the server's bothy.LinkService, without HoldLink.
type Links struct{ conn *conn }

var _ bothy.LinkService = (*Links)(nil)

// CreateLink implements bothy.LinkService. Only this answer contains the link's URL.
func (l *Links) CreateLink(ctx context.Context, sandboxID string, req bothy.LinkCreate) (*bothy.Link, error) {
	body := struct {
		Port           int            `json:"port"`
		Kind           bothy.LinkKind `json:"kind,omitempty"`
		KeepHost       bool           `json:"keep_host,omitempty"`
		ExpiresSeconds int            `json:"expires_seconds,omitempty"`
	}{req.Port, req.Kind, req.KeepHost, int(req.For / time.Second)}
	return get[bothy.Link](ctx, l.conn, http.MethodPost, sandboxPath(sandboxID, "/links"), nil, body)
}

// Links implements bothy.LinkService.
func (l *Links) Links(ctx context.Context, sandboxID string) ([]*bothy.Link, error) {
	return items[*bothy.Link](ctx, l.conn, http.MethodGet, sandboxPath(sandboxID, "/links"), nil, nil)
}

// DeleteLink implements bothy.LinkService.
func (l *Links) DeleteLink(ctx context.Context, sandboxID, id string) error {
	return l.conn.call(ctx, http.MethodDelete, sandboxPath(sandboxID, "/links/", url.PathEscape(id)), nil, nil, nil)
}

// HoldLink is not for clients: the server does it at every request.
func (l *Links) HoldLink(context.Context, string, func(error)) (*bothy.Link, func(), error) {
	return nil, nil, bothy.Errorf(bothy.CodeUnsupported, "a client cannot look behind a link").WithHint("The server does this by itself.")
}
