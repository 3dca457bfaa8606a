package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/bothy-dev/bothy"
)

// Hosts is the server's bothy.ClusterService.
type Hosts struct{ conn *conn }

var _ bothy.ClusterService = (*Hosts)(nil)

const hostsPath = "/v1/hosts"

// Hosts implements bothy.ClusterService.
func (h *Hosts) Hosts(ctx context.Context) ([]bothy.ClusterHost, error) {
	return items[bothy.ClusterHost](ctx, h.conn, http.MethodGet, hostsPath, nil, nil)
}

// InviteHost implements bothy.ClusterService.
func (h *Hosts) InviteHost(ctx context.Context) (*bothy.HostInvitation, error) {
	return get[bothy.HostInvitation](ctx, h.conn, http.MethodPost, hostsPath, nil, nil)
}

// UpdateHost implements bothy.ClusterService.
func (h *Hosts) UpdateHost(ctx context.Context, name string, u bothy.HostUpdate) (*bothy.ClusterHost, error) {
	return get[bothy.ClusterHost](ctx, h.conn, http.MethodPatch, hostsPath+"/"+url.PathEscape(name), nil, u)
}

// MoveSandbox implements bothy.ClusterService.
func (h *Hosts) MoveSandbox(ctx context.Context, id string, m bothy.SandboxMove) (*bothy.MovedSandbox, error) {
	return get[bothy.MovedSandbox](ctx, h.conn, http.MethodPost, sandboxPath(id, "/move"), nil, m)
}

// RemoveHost implements bothy.ClusterService.
func (h *Hosts) RemoveHost(ctx context.Context, name string) error {
	return h.conn.call(ctx, http.MethodDelete, hostsPath+"/"+url.PathEscape(name), nil, nil, nil)
}
