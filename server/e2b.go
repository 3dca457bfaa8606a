package server

import (
	"context"
	"net"
	"net/http"
	"strconv"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/e2b"
)

// openE2B serves E2B's clients on the API's listener.
func (s *Server) openE2B() {
	c := s.config.E2B
	if !c.Enabled {
		return
	}
	door := e2b.New(e2b.Services{
		Sandboxes: s.lifecycle, Snapshots: s.lifecycle, Templates: s.templates, Builder: s.builder, Code: s.lifecycle, Metrics: s.lifecycle,
		Logs: s.lifecycle, Limits: s.lifecycle, Events: s.lifecycle, Webhooks: s.webhooks, Guests: s.lifecycle, Keys: s.tokens, Server: e2bServer{s.api, s.store},
	}, e2b.Config{
		Templates: c.Templates, PublicPorts: c.PublicPorts, Domain: s.e2bDomain, Secret: s.vault.Derive("e2b"), Log: s.log,
	})
	s.e2b = door
	for _, r := range door.Routes() {
		s.api.HandleOuter(r.Pattern, outer(r.Call, e2b.KeyOf, e2b.Fail), r.Handler)
	}
	s.api.SetOuterPorts(door)
}

// e2bDomain is the domain of sandboxes' port names as clients write it, with a port if it is
// not the default.
func (s *Server) e2bDomain() string {
	domain := s.config.LinkDomain
	if a, ok := s.api.Addr().(*net.TCPAddr); ok && (domain == "localhost" || s.config.TLS.On() && a.Port != 443) {
		domain = net.JoinHostPort(domain, strconv.Itoa(a.Port))
	}
	return domain
}

func outer(c e2b.Call, key func(*http.Request) string, fail func(http.ResponseWriter, *http.Request, int, *bothy.Error)) middleware.Outer {
	return middleware.Outer{ID: c.ID, Scope: c.Scope, Stream: c.Stream, Audit: c.Audit, Reads: c.Reads, Key: key, Hold: c.Hold, Fail: fail}
}

// e2bServer adapts the server to e2b.Services.
type e2bServer struct {
	*api.Server
	store database
}

func (s e2bServer) ServePort(w http.ResponseWriter, r *http.Request, c e2b.Call,
	hold func(end func(error)) (*bothy.Caller, func(), error), h e2b.Handler) {
	s.ServeOuterPort(w, r, outer(c, nil, e2b.FailPort), hold, h)
}

func (s e2bServer) Note(r *http.Request, sandbox, object, command string) {
	middleware.NoteOuter(r, sandbox, object, command)
}

// Find finds a sandbox of any project. Ready machines that are not yet assigned to a project
// are not found.
func (s e2bServer) Find(ctx context.Context, id string) (*bothy.Sandbox, error) {
	row, err := s.store.Sandbox(ctx, id)
	if err == nil && row.Pooled {
		return nil, bothy.NoSandbox(id)
	}
	return row.Public(), err
}

func (s e2bServer) Alive(ctx context.Context) ([]*bothy.Sandbox, error) {
	rows, err := s.store.SandboxesInState(ctx, bothy.StateRunning, bothy.StatePausing, bothy.StatePaused, bothy.StateResuming)
	alive := make([]*bothy.Sandbox, len(rows))
	for i, row := range rows {
		alive[i] = row.Public()
	}
	return alive, err
}
