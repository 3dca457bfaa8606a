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

// The wire forms of requests whose types in the root package have none.
type (
	sandboxCreate struct {
		Template       string            `json:"template,omitempty"`
		SnapshotID     string            `json:"snapshot_id,omitempty"`
		Name           string            `json:"name,omitempty"`
		CPU            float64           `json:"cpu,omitempty"`
		MemoryMB       int               `json:"memory_mb,omitempty"`
		DiskMB         int               `json:"disk_mb,omitempty"`
		Size           string            `json:"size,omitempty"`
		Network        *bothy.Network    `json:"network,omitempty"`
		TimeoutSeconds *int              `json:"timeout_seconds,omitempty"`
		OnTimeout      bothy.OnTimeout   `json:"on_timeout,omitempty"`
		IdleSeconds    int               `json:"idle_seconds,omitempty"`
		AutoResume     bool              `json:"auto_resume,omitempty"`
		Env            map[string]string `json:"env,omitempty"`
		Secrets        []bothy.Secret    `json:"secrets,omitempty"`
		Metadata       map[string]string `json:"metadata,omitempty"`
		Engine         string            `json:"engine,omitempty"`
		Accelerated    bool              `json:"require_acceleration,omitempty"`
		Budget         float64           `json:"budget,omitempty"`
	}
	sandboxUpdate struct {
		TimeoutSeconds *int              `json:"timeout_seconds,omitempty"`
		OnTimeout      *bothy.OnTimeout  `json:"on_timeout,omitempty"`
		IdleSeconds    *int              `json:"idle_seconds,omitempty"`
		Metadata       map[string]string `json:"metadata,omitzero"` // an empty map drops them all
		Name           *string           `json:"name,omitempty"`
		Network        *bothy.Network    `json:"network,omitempty"`
		Budget         *float64          `json:"budget,omitempty"`
	}
)

// CreateRequest is the JSON of a create request, for callers of Do.
func CreateRequest(r bothy.SandboxCreate) any {
	return sandboxCreate{
		Template: r.Template, SnapshotID: r.SnapshotID, Name: r.Name, CPU: r.CPU, MemoryMB: r.MemoryMB, DiskMB: r.DiskMB,
		Size: r.Size, Network: r.Network, TimeoutSeconds: r.TimeoutSeconds, OnTimeout: r.OnTimeout, IdleSeconds: r.IdleSeconds,
		AutoResume: r.AutoResume, Env: r.Env, Secrets: r.Secrets, Metadata: r.Metadata, Engine: r.Engine, Accelerated: r.RequireAcceleration,
		Budget: r.Budget,
	}
}

// UpdateRequest is the JSON of a change, for callers of Do.
func UpdateRequest(u bothy.SandboxUpdate) any {
	return sandboxUpdate{
		TimeoutSeconds: u.TimeoutSeconds, OnTimeout: u.OnTimeout, IdleSeconds: u.IdleSeconds,
		Metadata: u.Metadata, Name: u.Name, Network: u.Network, Budget: u.Budget,
	}
}

// Create implements bothy.SandboxService.
func (s *Sandboxes) Create(ctx context.Context, req bothy.SandboxCreate) (*bothy.Sandbox, error) {
	return get[bothy.Sandbox](ctx, s.conn, http.MethodPost, "/v1/sandboxes", nil, CreateRequest(req))
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
	return get[bothy.Sandbox](ctx, s.conn, http.MethodPatch, sandboxPath(id), nil, UpdateRequest(u))
}

// Terminate implements bothy.SandboxService.
func (s *Sandboxes) Terminate(ctx context.Context, id string) error {
	return s.conn.call(ctx, http.MethodDelete, sandboxPath(id), nil, nil, nil)
}
