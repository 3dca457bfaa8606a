package middleware

import (
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// Audited reports whether a call is recorded even if it succeeds.
func (s *Chain) Audited(c Operation) bool {
	return s.Recorder != nil && (c.Audit || c.mutates() || s.AuditReads)
}

// audit records a request that was answered.
func (s *Chain) audit(r *http.Request, info *Request, status int, began time.Time, took time.Duration) {
	if s.Recorder == nil || info.recorded {
		return
	}
	refused := status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotFound
	c := info.Operation
	if !refused && (c == nil || !s.Audited(*c)) {
		return
	}
	a := bothy.AuditRecord{
		Time: began, Action: "request", Object: info.object, SandboxID: info.sandbox, Command: info.command,
		Remote: RemoteOf(r), RequestID: info.id, Status: status, DurationMS: took.Milliseconds(),
	}
	if x := info.Caller; x != nil {
		a.ProjectID, a.TokenID, a.TokenName, a.LinkID = x.ProjectID, x.TokenID, x.TokenName, x.LinkID
	}
	if p := info.problem; p != nil {
		a.Code = p.Code
	}
	switch {
	case info.Use != nil:
		a.Action, a.SandboxID, a.Object = c.ID, info.Use.Sandbox, info.Use.Object
		s.Recorder.RecordUse(a, info.Use.Changes)
		return
	case c == nil:
		a.Object = r.Method + " " + r.URL.Path
	default:
		a.Action = c.ID
		describeTarget(&a, *c, r)
	}
	s.Recorder.Record(a)
}

// maxID is longer than any id.
const maxID = 64

// describeTarget records a call's target, as far as its path shows it.
func describeTarget(a *bothy.AuditRecord, c Operation, r *http.Request) {
	id := r.PathValue("id")
	if id == "" {
		id = r.PathValue("name")
	}
	switch {
	case strings.HasPrefix(c.Path, "/v1/sandboxes/{id}") && len(id) <= maxID:
		a.SandboxID = id
		for _, name := range []string{"pid", "context", "port"} {
			if v := r.PathValue(name); v != "" {
				a.Object = v
			}
		}
		if path := r.URL.Query().Get("path"); path != "" && a.Object == "" {
			a.Object = path
		}
	case a.Object == "" || id != "":
		a.Object = id
	}
}

func RemoteOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
