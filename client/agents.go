package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/bothy-dev/bothy"
)

// Agents is the server's bothy.AgentService.
type Agents struct{ conn *conn }

var _ bothy.AgentService = (*Agents)(nil)

const agentsPath = "/v1/agents"

// AttachAgents implements bothy.AgentService.
func (a *Agents) AttachAgents(ctx context.Context, req bothy.AgentAttach) (*bothy.AgentAttachment, error) {
	return get[bothy.AgentAttachment](ctx, a.conn, http.MethodPost, agentsPath, nil, req)
}

// AgentAttachments implements bothy.AgentService.
func (a *Agents) AgentAttachments(ctx context.Context) ([]*bothy.AgentAttachment, error) {
	return items[*bothy.AgentAttachment](ctx, a.conn, http.MethodGet, agentsPath, nil, nil)
}

// AgentAttachment implements bothy.AgentService.
func (a *Agents) AgentAttachment(ctx context.Context, id string) (*bothy.AgentAttachment, error) {
	return get[bothy.AgentAttachment](ctx, a.conn, http.MethodGet, agentsPath+"/"+url.PathEscape(id), nil, nil)
}

// DetachAgents implements bothy.AgentService.
func (a *Agents) DetachAgents(ctx context.Context, id string) error {
	return a.conn.call(ctx, http.MethodDelete, agentsPath+"/"+url.PathEscape(id), nil, nil, nil)
}
