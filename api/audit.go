package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

type (
	auditInput struct {
		Since   time.Time `query:"since" doc:"Only records from this time on."`
		Until   time.Time `query:"until" doc:"Only records from before this time."`
		Action  string    `query:"action" doc:"Only this action, such as exec or mcp:run_shell."`
		Token   string    `query:"token" doc:"Only what the token with this id did."`
		Sandbox string    `query:"sandbox" doc:"Only what was done to the sandbox with this id."`
		Project string    `query:"project" doc:"Only this project; the default project sees all."`
		Refused bool      `query:"refused" doc:"Only what was answered with 401, 403 or 404."`
		Order   string    `query:"order" enum:"newest,oldest" default:"newest" doc:"Which come first."`
		Limit   int       `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many to return at most."`
		Cursor  int64     `query:"cursor" minimum:"0" doc:"The next_cursor of the page before, or the id of a record to go on from."`
	}
	auditCheckInput struct {
		At   int64  `query:"at" minimum:"0" doc:"The id of a record whose hash was kept elsewhere."`
		Head string `query:"head" pattern:"^([0-9a-f]{64})?$" doc:"That hash."`
	}
)

func (s *Server) registerAudit() {
	svc := s.services.Audit
	if svc == nil {
		return
	}
	add(s, call{
		ID: "list-audit", Method: http.MethodGet, Path: "/v1/audit", Tag: "Events",
		Summary: "List who did what", Scope: bothy.ScopeAdmin, Audit: true,
		Text: "What was done, and what was tried and refused: who, what, to what, when, from where, and how it ended. " +
			"The default project sees that of all projects, and another its own.",
	}, func(ctx context.Context, in *auditInput) (*answer[bothy.Page[bothy.AuditRecord]], error) {
		return page(svc.Audit(ctx, bothy.AuditFilter{
			Since: in.Since, Until: in.Until, Action: in.Action, TokenID: in.Token, SandboxID: in.Sandbox, ProjectID: in.Project,
			Refused: in.Refused, Oldest: in.Order == "oldest", Limit: in.Limit, Cursor: in.Cursor,
		}))
	})
	add(s, call{
		ID: "verify-audit", Method: http.MethodGet, Path: "/v1/audit/verify", Tag: "Events",
		Summary: "Check that the audit is as it was written", Scope: bothy.ScopeAdmin, Audit: true,
		Text: "Each record's hash covers the record and the hash before it. With `at` and `head`, of a check in the past, " +
			"it is also checked that nothing up to there was made anew. Only the default project checks.",
	}, func(ctx context.Context, in *auditCheckInput) (*answer[*bothy.AuditCheck], error) {
		return one(svc.CheckAudit(ctx, in.At, in.Head))
	})
}

// audited reports whether a call belongs into the audit also when it is done.
func (s *Server) audited(c call) bool {
	return s.services.Recorder != nil && (c.Audit || c.mutates() || s.config.AuditReads)
}

// commanded and touched are inputs that say what is run, and what it is done
// to, other than in the path.
type (
	commanded interface{ command() string }
	touched   interface{ object() string }
)

func (in *execInput) command() string { return CommandText(in.Body.Command) }
func (in *codeInput) command() string { return in.Body.Code }

func (in *writeInput) object() string      { return in.Body.Path }
func (in *mkdirInput) object() string      { return in.Body.Path }
func (in *moveInput) object() string       { return in.Body.From + " " + in.Body.To }
func (in *projectInput) object() string    { return in.Body.ID }
func (in *rollbackInput) object() string   { return in.Body.SnapshotID }
func (in *auditInput) object() string      { return in.Project }
func (in *auditCheckInput) object() string { return in.Head }

// CommandText is a command as a person would read it.
func CommandText(c bothy.Command) string {
	if c.Line != "" || len(c.Args) == 0 {
		return c.Line
	}
	b, err := json.Marshal(c.Args)
	if err != nil {
		return ""
	}
	return string(b)
}

// noteInput notes what a call's input says for the audit.
func noteInput(ctx context.Context, in any) {
	info := requestFrom(ctx)
	if info == nil {
		return
	}
	if x, ok := in.(commanded); ok {
		info.command = x.command()
	}
	if x, ok := in.(touched); ok {
		info.object = x.object()
	}
}

// noteOutput notes what a call has made.
func noteOutput(ctx context.Context, out any) {
	info := requestFrom(ctx)
	if info == nil {
		return
	}
	switch x := out.(type) {
	case *createdOutput:
		info.sandbox = x.Body.ID
	case *answer[*bothy.Sandbox]:
		info.sandbox = x.Body.ID
	case *answer[*bothy.Snapshot]:
		info.object = x.Body.ID
	case *answer[Paused]:
		info.object = x.Body.SnapshotID
	case *answer[*bothy.Token]:
		info.object = x.Body.ID
	case *answer[*bothy.CodeContext]:
		info.object = x.Body.ID
	case *answer[*bothy.Link]:
		info.object = x.Body.ID
	case *answer[items[*bothy.Sandbox]]:
		ids := make([]string, len(x.Body.Items))
		for i, b := range x.Body.Items {
			ids[i] = b.ID
		}
		info.object = strings.Join(ids, " ")
	}
}

// audit keeps a record of a request that was answered.
func (s *Server) audit(r *http.Request, info *request, status int, began time.Time, took time.Duration) {
	if s.services.Recorder == nil || info.recorded {
		return
	}
	refused := status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotFound
	c := info.call
	if !refused && (c == nil || !s.audited(*c)) {
		return
	}
	a := bothy.AuditRecord{
		Time: began, Action: "request", Object: info.object, SandboxID: info.sandbox, Command: info.command,
		Remote: remoteOf(r), RequestID: info.id, Status: status, DurationMS: took.Milliseconds(),
	}
	if x := info.caller; x != nil {
		a.ProjectID, a.TokenID, a.TokenName, a.LinkID = x.ProjectID, x.TokenID, x.TokenName, x.LinkID
	}
	if p := info.problem; p != nil {
		a.Code = p.Code
	}
	switch {
	case info.use != nil:
		a.Action, a.SandboxID, a.Object = c.ID, info.use.sandbox, info.use.object
		s.services.Recorder.RecordUse(a, info.use.changes)
		return
	case c == nil:
		a.Object = r.Method + " " + r.URL.Path
	default:
		a.Action = c.ID
		describeTarget(&a, *c, r)
	}
	s.services.Recorder.Record(a)
}

// portUse is a request to a port of a sandbox, for the audit.
type portUse struct {
	sandbox, object string
	changes         bool
}

// useOf says what was asked of a port, without the query, in which there may be
// secrets.
func (s *Server) useOf(r *http.Request, t portTarget) *portUse {
	path := strings.TrimPrefix(r.URL.Path, t.prefix)
	return &portUse{sandbox: t.sandbox, object: fmt.Sprintf("%d %s %s", t.port, r.Method, path), changes: changes(r)}
}

// maxID is longer than any id.
const maxID = 64

// describeTarget says what a call was about, as far as its path does.
func describeTarget(a *bothy.AuditRecord, c call, r *http.Request) {
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

func remoteOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
