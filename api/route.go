package api

import (
	"net/http"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/ports"
)

// route determines by the request's host and path what is requested.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	t, named := s.ports.LinkTarget(r.Host)
	if !named && middleware.PeerFrom(r.Context()) == nil {
		if err := s.chain.Hosts.Check(r.Host); err != nil {
			s.chain.Fail(w, r, err)
			return
		}
	}
	b, browser := s.ports.CDPTarget(r)
	browser = browser && !named
	if s.peers != nil {
		handled, leave := s.peers.Route(w, r)
		defer leave()
		if handled {
			if named || browser {
				ports.TakeLink(r) // it must not be logged
			}
			return
		}
	}
	// No header makes a sandbox answer for a page of the console.
	ownPage := !named && strings.HasPrefix(r.URL.Path, "/console/")
	if s.outerPorts != nil && !ownPage && !browser && s.outerPorts.ServePort(w, r, t.Sandbox, t.Port) {
		return
	}
	if named {
		webhook := ports.TakeLink(r)
		middleware.RequestFrom(r.Context()).Use = s.ports.UseOf(r, t)
		s.ports.ServeLink(w, r, t, webhook)
		return
	}
	if browser {
		s.ports.ServeCDPLink(w, r, b)
		return
	}
	s.mux.ServeHTTP(w, ports.AsItIs(r))
}

// NoRoute answers as for a path that does not exist.
func (s *Server) NoRoute() http.Handler { return http.HandlerFunc(s.noRoute) }

// noRoute answers for a path that does not exist.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) {
	if s.outerPorts != nil && s.outerPorts.ServeMissing(w, r) {
		return
	}
	var allowed []string
	for _, m := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		probe := *r
		probe.Method = m
		if _, pattern := s.mux.Handler(&probe); pattern != "/" && m != r.Method { // what leads browsers on comes here for others
			allowed = append(allowed, m)
		}
	}
	if len(allowed) == 0 {
		s.chain.Fail(w, r, bothy.Errorf(bothy.CodeNotFound, "there is nothing at %s", r.URL.Path).
			WithHint("GET /openapi.json, or open /docs, to see the calls; they begin with /v1."))
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	s.chain.Fail(w, r, bothy.Errorf(bothy.CodeMethodNotAllowed, "%s is not possible on %s", r.Method, r.URL.Path).
		WithHint("Use %s.", strings.Join(allowed, " or ")))
}
