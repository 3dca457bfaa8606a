package api

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/bothy-dev/bothy/api/middleware"
)

// Peers are the other hosts of a cluster.
type Peers interface {
	// Route forwards a request to another host, if one has what it is about, and reports whether
	// the request has been handled. leave is always called afterwards.
	Route(w http.ResponseWriter, r *http.Request) (handled bool, leave func())
}

// SetPeers makes requests be forwarded to other hosts. It is called before Serve.
func (s *Server) SetPeers(p Peers) { s.peers = p }

// ServePeers answers requests that other hosts forward, until l is closed. h authenticates the
// hosts.
func (s *Server) ServePeers(l net.Listener, h http.Handler) *http.Server {
	x := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 128 << 10,
		ErrorLog:    slog.NewLogLogger(s.chain.Log.Handler(), slog.LevelDebug),
		BaseContext: s.http.BaseContext, ConnState: middleware.ConnState, ConnContext: middleware.ConnContext,
	}
	go func() { _ = x.Serve(l) }()
	return x
}

// Fail answers a request with an error.
func (s *Server) Fail(w http.ResponseWriter, r *http.Request, err error) { s.chain.Fail(w, r, err) }

// LoggedIn finds the key behind a request, and reports whether the request came with a browser's
// login instead. key is that of a request to an API with keys in a form of its own, in this server's
// form; it is "" of any other request.
func (s *Server) LoggedIn(r *http.Request, key string) (project, token string, login bool, err error) {
	if key != "" {
		c, err := s.chain.Tokens.Authenticate(r.Context(), key)
		if err != nil {
			return "", "", false, err
		}
		return c.ProjectID, c.TokenID, false, nil
	}
	if _, err := s.chain.Authenticate(r); err != nil {
		return "", "", false, err
	}
	c := middleware.RequestFrom(r.Context()).Caller
	return c.ProjectID, c.TokenID, r.Header.Get("Authorization") == "", nil
}

// BodyMemory returns a function that reserves memory of a project for the body of a request, which
// is read to find the host that answers. The memory is released when the request ends.
func (s *Server) BodyMemory(r *http.Request, project string) func(ctx context.Context, n int64) error {
	info, limits := middleware.RequestFrom(r.Context()), s.chain.Inflight
	if limits == nil || info == nil {
		return func(context.Context, int64) error { return nil }
	}
	m := limits.Memory.Memory(project)
	info.OnRelease(m.End)
	return m.Hold
}

// ProjectOf returns the project of the link or key with which a request for a port's own host
// name comes, or "".
func (s *Server) ProjectOf(r *http.Request) string { return s.ports.ProjectOf(r) }

// PortOf finds the sandbox of a request for a port by a host name or a link to a browser, if it is one.
func (s *Server) PortOf(r *http.Request) (sandbox string) {
	t, named := s.ports.LinkTarget(r.Host)
	if !named {
		t, _ = s.ports.CDPTarget(r)
	}
	return t.Sandbox
}
