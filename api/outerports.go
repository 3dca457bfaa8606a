package api

import (
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/ports"
)

// HandleOuter mounts a call of another protocol. The handler returns the error that it did not
// answer with.
func (s *Server) HandleOuter(pattern string, o middleware.Outer, h func(http.ResponseWriter, *http.Request) error) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if o.Hold != nil {
			s.ServeOuterPort(w, r, o, func(end func(error)) (*bothy.Caller, func(), error) { return o.Hold(r, end) }, h)
			return
		}
		c := o.Operation(r.Method)
		if info := middleware.RequestFrom(r.Context()); info != nil {
			info.Operation, info.Outer = &c, &o
		}
		r, err := s.chain.EnterOuter(r, o, c)
		if err == nil {
			err = h(w, r)
		}
		if err != nil {
			s.chain.Fail(w, r, err)
		}
	})
}

// An OuterPorts is another protocol's way to the ports of sandboxes.
type OuterPorts interface {
	// ServePort answers a request if it is for that protocol, and reports whether it was.
	// The sandbox and the port are those in the host name, or empty.
	ServePort(w http.ResponseWriter, r *http.Request, sandbox string, port uint16) bool
	// ServeMissing answers a request for something that does not exist, if it comes from a
	// client of the protocol.
	ServeMissing(w http.ResponseWriter, r *http.Request) bool
}

// SetOuterPorts lets another protocol handle requests for ports first.
func (s *Server) SetOuterPorts(p OuterPorts) { s.outerPorts = p }

// ServeOuterPort is HandleOuter for a request that has been routed, whose caller the other
// protocol finds itself: hold is told when the caller's key ends, as by bothy.KeyHolder.
func (s *Server) ServeOuterPort(w http.ResponseWriter, r *http.Request, o middleware.Outer,
	hold func(end func(error)) (*bothy.Caller, func(), error), h func(http.ResponseWriter, *http.Request) error) {
	c := o.Operation(r.Method)
	info := middleware.RequestFrom(r.Context())
	info.Operation, info.Outer = &c, &o
	caller, release, err := hold(info.End)
	if err == nil {
		info.OnRelease(release)
		r = middleware.WithCaller(r, caller)
		if s.chain.Audited(c) {
			err = s.chain.Recorder.Admit()
		}
	}
	if err == nil {
		r, err = s.chain.Admit(r)
	}
	if err == nil {
		err = h(w, r)
	}
	if err != nil {
		s.chain.Fail(w, r, err)
	}
}

// ShowPort shows a port of a sandbox to the caller in the request's context. The request's
// Authorization header is for the server there.
func (s *Server) ShowPort(w http.ResponseWriter, r *http.Request, sandbox string, port uint16) {
	if info := middleware.RequestFrom(r.Context()); info != nil {
		info.Operation = &ports.ProxyOperation
	}
	s.ports.ShowPort(w, r, ports.Target{Sandbox: sandbox, Port: port, Linked: true, KeepHost: true})
}
