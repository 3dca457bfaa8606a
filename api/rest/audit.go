package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
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
		Limit   int       `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most to return."`
		Cursor  int64     `query:"cursor" minimum:"0" doc:"The next_cursor of the page before, or the id of a record to continue from."`
	}
	auditCheckInput struct {
		At   int64  `query:"at" minimum:"0" doc:"The id of a record whose hash was kept elsewhere."`
		Head string `query:"head" pattern:"^([0-9a-f]{64})?$" doc:"That hash."`
	}
)

func (s *handlers) registerAudit() {
	svc := s.services.Audit
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-audit", Method: http.MethodGet, Path: "/v1/audit", Tag: "Events",
		Summary: "List who did what", Scope: bothy.ScopeAdmin, Audit: true,
		Text: "Everything that was done, or tried and refused: by whom, to what, when, from where, and with what result. " +
			"The default project sees all projects, any other only its own.",
	}, func(ctx context.Context, in *auditInput) (*openapi.Answer[bothy.Page[bothy.AuditRecord]], error) {
		return page(svc.Audit(ctx, bothy.AuditFilter{
			Since: in.Since, Until: in.Until, Action: in.Action, TokenID: in.Token, SandboxID: in.Sandbox, ProjectID: in.Project,
			Refused: in.Refused, Oldest: in.Order == "oldest", Limit: in.Limit, Cursor: in.Cursor,
		}))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "verify-audit", Method: http.MethodGet, Path: "/v1/audit/verify", Tag: "Events",
		Summary: "Check that the audit was not altered", Scope: bothy.ScopeAdmin, Audit: true,
		Text: "Each record's hash covers the record and the previous hash. With `at` and `head` from an earlier check, " +
			"it also checks that nothing up to there was rewritten. Only for the default project.",
	}, func(ctx context.Context, in *auditCheckInput) (*openapi.Answer[*bothy.AuditCheck], error) {
		return one(svc.CheckAudit(ctx, in.At, in.Head))
	})
}

func (in *execInput) AuditCommand() string { return CommandText(in.Body.Command) }
func (in *codeInput) AuditCommand() string { return in.Body.Code }

func (in *writeInput) AuditObject() string      { return in.Body.Path }
func (in *mkdirInput) AuditObject() string      { return in.Body.Path }
func (in *moveInput) AuditObject() string       { return in.Body.From + " " + in.Body.To }
func (in *projectInput) AuditObject() string    { return in.Body.ID }
func (in *rollbackInput) AuditObject() string   { return in.Body.SnapshotID }
func (in *auditInput) AuditObject() string      { return in.Project }
func (in *auditCheckInput) AuditObject() string { return in.Head }
func (in *hostInput) AuditObject() string       { return in.Host }
func (in *hostUpdateInput) AuditObject() string { return in.Host + " " + string(in.Body.State) }

// AuditObject is the host that a sandbox should be moved to.
func (in *sandboxMoveInput) AuditObject() string {
	if in.Body == nil {
		return ""
	}
	return in.Body.Host
}

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

func (o *createdOutput) AuditOutput() (sandbox, object string) { return o.Body.ID, "" }
func (p Paused) AuditObject() string                           { return p.SnapshotID }
