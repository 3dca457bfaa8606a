package middleware

import (
	"net/http"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/problem"
)

// Outer is a call of another protocol, with its own format of keys and errors. The same
// middleware applies: the key, the scope, the limits on requests in flight, and the audit.
type Outer struct {
	// ID is the call's name in the record.
	ID    string
	Scope bothy.Scope
	// Stream marks a call that lasts until one side ends it, Audit one that is recorded although
	// it changes nothing, and Reads one that changes nothing although its method is not GET.
	Stream, Audit, Reads bool
	// Raw marks a call whose body is forwarded as it arrives: no memory is reserved for it.
	Raw bool
	// Key finds the key in a request.
	Key func(r *http.Request) string
	// Hold, used instead of Key, finds the caller of a request itself: end is called when the
	// caller's key ends, as by bothy.KeyHolder.
	Hold func(r *http.Request, end func(error)) (*bothy.Caller, func(), error)
	// Fail answers with an error; status is the one of this API.
	Fail func(w http.ResponseWriter, r *http.Request, status int, err *bothy.Error)
}

func (o Outer) Operation(method string) Operation {
	c := Operation{ID: o.ID, Method: method, Scope: o.Scope, Audit: o.Audit}
	if o.Reads {
		c.Method = http.MethodGet
	}
	if o.Stream {
		c.Returns = []Form{{ContentType: EventsType}}
	}
	return c
}

func (s *Chain) EnterOuter(r *http.Request, o Outer, c Operation) (*http.Request, error) {
	caller, err := s.HoldKey(r, o.Key(r))
	if err != nil {
		return r, err
	}
	r = WithCaller(r, caller)
	if _, err := bothy.Require(r.Context(), o.Scope); err != nil {
		return r, err
	}
	if s.Audited(c) {
		if err := s.Recorder.Admit(); err != nil {
			return r, err
		}
	}
	if o.Raw {
		return s.Admit(r)
	}
	return s.AdmitOther(r)
}

func WithCaller(r *http.Request, caller *bothy.Caller) *http.Request {
	if info := RequestFrom(r.Context()); info != nil {
		info.Caller = caller
	}
	return r.WithContext(bothy.WithCaller(r.Context(), caller))
}

// failOuter answers with an error in the other protocol's shape.
func failOuter(w http.ResponseWriter, r *http.Request, o *Outer, p *problem.Problem) {
	for k, v := range p.GetHeaders() {
		if k != "Www-Authenticate" {
			w.Header()[k] = v
		}
	}
	o.Fail(w, r, p.Status, p.Cause())
}

// NoteOuter records what a call of another protocol was about. Empty values leave what was
// recorded before.
func NoteOuter(r *http.Request, sandbox, object, command string) {
	info := RequestFrom(r.Context())
	if info == nil {
		return
	}
	for to, text := range map[*string]string{&info.sandbox: sandbox, &info.object: object, &info.command: command} {
		if text != "" {
			*to = strings.ToValidUTF8(text, "\uFFFD")
		}
	}
}
