package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/bothy-dev/bothy"
)

// Projects is the server's bothy.ProjectService.
type Projects struct{ conn *conn }

// CreateProject implements bothy.ProjectService.
func (p *Projects) CreateProject(ctx context.Context, req bothy.ProjectCreate) (*bothy.Project, error) {
	return get[bothy.Project](ctx, p.conn, http.MethodPost, "/v1/projects", nil, req)
}

// Project implements bothy.ProjectService.
func (p *Projects) Project(ctx context.Context, id string) (*bothy.Project, error) {
	return get[bothy.Project](ctx, p.conn, http.MethodGet, "/v1/projects/"+url.PathEscape(id), nil, nil)
}

// Projects implements bothy.ProjectService.
func (p *Projects) Projects(ctx context.Context) ([]*bothy.Project, error) {
	return items[*bothy.Project](ctx, p.conn, http.MethodGet, "/v1/projects", nil, nil)
}

// UpdateProject implements bothy.ProjectService.
func (p *Projects) UpdateProject(ctx context.Context, id string, u bothy.ProjectUpdate) (*bothy.Project, error) {
	return get[bothy.Project](ctx, p.conn, http.MethodPatch, "/v1/projects/"+url.PathEscape(id), nil, u)
}
