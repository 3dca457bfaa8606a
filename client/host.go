package client

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
)

// Host is the server's bothy.HostService.
type Host struct{ conn *conn }

// Host implements bothy.HostService.
func (h *Host) Host(ctx context.Context) (*bothy.Host, error) {
	return get[bothy.Host](ctx, h.conn, http.MethodGet, "/v1/host", nil, nil)
}
