package api

import (
	"net/http"

	"github.com/bothy-dev/bothy"
)

// HandleOuter mounts a call of another door. The handler returns the error that it
// did not answer with.
func (s *Server) HandleOuter(pattern string, o Outer, h func(http.ResponseWriter, *http.Request) error) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		c := o.call(r.Method)
		if info := requestFrom(r.Context()); info != nil {
			info.call, info.outer = &c, &o
		}
		r, err := s.chain.enterOuter(r, o, c)
		if err == nil {
			err = h(w, r)
		}
		if err != nil {
			s.chain.fail(w, r, err)
		}
	})
}

// An OuterPorts is another door's way to the ports of sandboxes.
type OuterPorts interface {
	// ServePort answers a request if it is for that door, and reports whether it was.
	// The sandbox and the port are those in the host name, or empty.
	ServePort(w http.ResponseWriter, r *http.Request, sandbox string, port uint16) bool
}

// SetOuterPorts has another door look at requests for ports first.
func (s *Server) SetOuterPorts(p OuterPorts) { s.outerPorts = p }

// ServeOuterPort is HandleOuter for a request that has been routed, whose caller the
// other door finds by itself: hold is told of the caller's end, as by bothy.KeyHolder.
func (s *Server) ServeOuterPort(w http.ResponseWriter, r *http.Request, o Outer,
	hold func(end func(error)) (*bothy.Caller, func(), error), h func(http.ResponseWriter, *http.Request) error) {
	c := o.call(r.Method)
	info := requestFrom(r.Context())
	info.call, info.outer = &c, &o
	caller, release, err := hold(info.end)
	if err == nil {
		info.onRelease(release)
		r = withCaller(r, caller)
		if s.chain.audited(c) {
			err = s.chain.Recorder.Admit()
		}
	}
	if err == nil {
		r, err = s.chain.admit(r)
	}
	if err == nil {
		err = h(w, r)
	}
	if err != nil {
		s.chain.fail(w, r, err)
	}
}

// ShowPort shows a port of a sandbox to the caller in the request's context. What
// the request holds in Authorization is for the server there.
func (s *Server) ShowPort(w http.ResponseWriter, r *http.Request, sandbox string, port uint16) {
	if info := requestFrom(r.Context()); info != nil {
		info.call = &proxyCall
	}
	s.ports.showPort(w, r, portTarget{sandbox: sandbox, port: port, linked: true})
}
