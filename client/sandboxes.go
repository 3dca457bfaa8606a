package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// Sandboxes is the server's bothy.SandboxService.
type Sandboxes struct{ conn *conn }

// Create implements bothy.SandboxService.
func (s *Sandboxes) Create(ctx context.Context, req bothy.SandboxCreate) (*bothy.Sandbox, error) {
	return get[bothy.Sandbox](ctx, s.conn, http.MethodPost, "/v1/sandboxes", nil, req)
}

// Get implements bothy.SandboxService.
func (s *Sandboxes) Get(ctx context.Context, id string) (*bothy.Sandbox, error) {
	return get[bothy.Sandbox](ctx, s.conn, http.MethodGet, sandboxPath(id), nil, nil)
}

// List implements bothy.SandboxService.
func (s *Sandboxes) List(ctx context.Context, f bothy.SandboxFilter) (bothy.Page[*bothy.Sandbox], error) {
	var p bothy.Page[*bothy.Sandbox]
	err := s.conn.call(ctx, http.MethodGet, "/v1/sandboxes", ListQuery(f), nil, &p)
	return p, err
}

// ListQuery is the query of a list request, for callers of Do.
func ListQuery(f bothy.SandboxFilter) url.Values {
	q := pageQuery(f.Name, f.Limit, f.Cursor)
	states := make([]string, len(f.States))
	for i, s := range f.States {
		states[i] = string(s)
	}
	setIf(q, "state", strings.Join(states, ","))
	for k, v := range f.Metadata {
		q.Set("metadata."+k, v)
	}
	return q
}

func pageQuery(name string, limit int, cursor string) url.Values {
	q := url.Values{}
	setIf(q, "name", name)
	setIf(q, "cursor", cursor)
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return q
}

func setIf(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func setTime(q url.Values, name string, at time.Time) {
	if !at.IsZero() {
		q.Set(name, at.UTC().Format(time.RFC3339Nano))
	}
}

// Update implements bothy.SandboxService.
func (s *Sandboxes) Update(ctx context.Context, id string, u bothy.SandboxUpdate) (*bothy.Sandbox, error) {
	return get[bothy.Sandbox](ctx, s.conn, http.MethodPatch, sandboxPath(id), nil, u)
}

// Restart implements bothy.SandboxService.
func (s *Sandboxes) Restart(ctx context.Context, id string) (*bothy.Sandbox, error) {
	return get[bothy.Sandbox](ctx, s.conn, http.MethodPost, sandboxPath(id)+"/restart", nil, nil)
}

// Terminate implements bothy.SandboxService.
func (s *Sandboxes) Terminate(ctx context.Context, id string) error {
	return s.conn.call(ctx, http.MethodDelete, sandboxPath(id), nil, nil, nil)
}
