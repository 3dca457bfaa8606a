package api

import (
	"net/http"
	"strings"

	"github.com/bothy-dev/bothy"
)

// Outer is a call of another door, which has keys and errors of its own shape. What
// stands before every call stands before it, too: the key, the scope, the bounds on
// what is under way, and the record of who did what.
type Outer struct {
	// ID is the call's name in the record.
	ID    string
	Scope bothy.Scope
	// Stream marks a call that lasts until somebody ends it, Audit one that is recorded
	// although it changes nothing, and Reads one that changes nothing although its
	// method is not GET.
	Stream, Audit, Reads bool
	// Key finds the key in a request.
	Key func(r *http.Request) string
	// Fail answers with an error; status is the one of this door.
	Fail func(w http.ResponseWriter, r *http.Request, status int, err *bothy.Error)
}

func (o Outer) call(method string) call {
	c := call{ID: o.ID, Method: method, Scope: o.Scope, Audit: o.Audit}
	if o.Reads {
		c.Method = http.MethodGet
	}
	if o.Stream {
		c.Returns = []form{{contentType: eventsType}}
	}
	return c
}

// HandleOuter mounts a call of another door. The handler returns the error that it
// did not answer with.
func (s *Server) HandleOuter(pattern string, o Outer, h func(http.ResponseWriter, *http.Request) error) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		c := o.call(r.Method)
		if info := requestFrom(r.Context()); info != nil {
			info.call, info.outer = &c, &o
		}
		r, err := s.enterOuter(r, o, c)
		if err == nil {
			err = h(w, r)
		}
		if err != nil {
			s.fail(w, r, err)
		}
	})
}

func (s *Server) enterOuter(r *http.Request, o Outer, c call) (*http.Request, error) {
	caller, err := s.holdKey(r, o.Key(r))
	if err != nil {
		return r, err
	}
	r = withCaller(r, caller)
	if _, err := bothy.Require(r.Context(), o.Scope); err != nil {
		return r, err
	}
	if s.audited(c) {
		if err := s.services.Recorder.Admit(); err != nil {
			return r, err
		}
	}
	return s.admitOther(r)
}

func withCaller(r *http.Request, caller *bothy.Caller) *http.Request {
	if info := requestFrom(r.Context()); info != nil {
		info.caller = caller
	}
	return r.WithContext(bothy.WithCaller(r.Context(), caller))
}

// failOuter answers with an error in the other door's shape.
func failOuter(w http.ResponseWriter, r *http.Request, o *Outer, p *Problem) {
	for k, v := range p.GetHeaders() {
		if k != "Www-Authenticate" {
			w.Header()[k] = v
		}
	}
	o.Fail(w, r, p.Status, p.err)
}

// NoteOuter says for the record what a call of another door was about. Empty values
// leave what was said before.
func NoteOuter(r *http.Request, sandbox, object, command string) {
	info := requestFrom(r.Context())
	if info == nil {
		return
	}
	for to, text := range map[*string]string{&info.sandbox: sandbox, &info.object: object, &info.command: command} {
		if text != "" {
			*to = strings.ToValidUTF8(text, "\uFFFD")
		}
	}
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
		if s.audited(c) {
			err = s.services.Recorder.Admit()
		}
	}
	if err == nil {
		r, err = s.admit(r)
	}
	if err == nil {
		err = h(w, r)
	}
	if err != nil {
		s.fail(w, r, err)
	}
}

// ShowPort shows a port of a sandbox to the caller in the request's context. What
// the request holds in Authorization is for the server there.
func (s *Server) ShowPort(w http.ResponseWriter, r *http.Request, sandbox string, port uint16) {
	if info := requestFrom(r.Context()); info != nil {
		info.call = &proxyCall
	}
	s.showPort(w, r, portTarget{sandbox: sandbox, port: port, linked: true})
}
