package middleware

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"regexp"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/problem"
)

// A Request is what the middleware knows about a request in flight.
type Request struct {
	id     string
	Caller *bothy.Caller
	// Operation is the requested operation, if it was recognised; command, sandbox and object
	// are for the audit. recorded is set if another protocol has recorded it.
	Operation                *Operation
	command, sandbox, object string
	recorded                 bool
	// Use is the request to a port in a sandbox, if it is one.
	Use *PortUse
	// Outer is the call of another protocol, if it is one.
	Outer *Outer
	// problem is the error sent to the caller, with its cause.
	problem *problem.Problem

	hold
	load
}

// PortUse is a request to a port of a sandbox, for the audit.
type PortUse struct {
	Sandbox, Object string
	Changes         bool
}

type requestKey struct{}

func RequestFrom(ctx context.Context) *Request {
	r, _ := ctx.Value(requestKey{}).(*Request)
	return r
}

// Note keeps a problem for the log.
func Note(ctx context.Context, p *problem.Problem) {
	if r := RequestFrom(ctx); r != nil {
		r.problem = p
	}
}

var validRequestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); validRequestID.MatchString(id) {
		return id
	}
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return "req_" + hex.EncodeToString(b[:])
}

// recorder records the answer.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
	// body is the request's body, or nil; refused means that its rest is not wanted.
	body    *incoming
	refused bool
}

func (w *recorder) statusOrOK() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 || w.status == http.StatusContinue {
		w.status = status
		w.refusing(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController and the WebSocket library find the connection's other
// abilities.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
