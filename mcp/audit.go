package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
)

type recordKey struct{}

// recorded records the calls of tools that change something, or read data from a sandbox, and
// refused calls.
func (t tools) recorded(next mcp.MethodHandler) mcp.MethodHandler {
	if t.Recorder == nil {
		return next
	}
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		p, ok := req.GetParams().(*mcp.CallToolParamsRaw)
		if !ok || method != "tools/call" {
			return next(ctx, method, req)
		}
		looks := p.Name != "read_file" && t.looks[p.Name]
		if !looks {
			if err := t.Recorder.Admit(); err != nil {
				var r mcp.CallToolResult
				r.SetError(failure(err))
				return &r, nil
			}
		}
		r := recordOf(ctx, p)
		began := time.Now()
		result, err := next(context.WithValue(ctx, recordKey{}, r), method, req)
		if err != nil && r.Code == "" { // the call did not reach the tool
			r.Code = bothy.CodeInvalid
		}
		if x, ok := result.(*mcp.CallToolResult); ok && x != nil && x.IsError && r.Code == "" {
			r.Code = bothy.CodeInvalid // its arguments do not match the schema
		}
		if ctx.Err() != nil && r.Code == bothy.CodeInternal {
			r.Code = bothy.CodeTimeout
		}
		r.Status = statusOf(r.Code)
		r.DurationMS = time.Since(began).Milliseconds()
		if !looks || r.Status != http.StatusOK && r.Status != http.StatusBadRequest {
			t.Recorder.Record(*r)
		}
		return result, err
	}
}

// recordOf starts a record with the call's own information.
func recordOf(ctx context.Context, p *mcp.CallToolParamsRaw) *bothy.AuditRecord {
	var in struct {
		SandboxID  string `json:"sandbox_id"`
		SnapshotID string `json:"snapshot_id"`
		Path       string `json:"path"`
		Command    string `json:"command"`
		Code       string `json:"code"`
	}
	_ = json.Unmarshal(p.Arguments, &in) // its content may be anything
	r := &bothy.AuditRecord{
		Time: time.Now(), Action: "mcp:" + p.Name, SandboxID: in.SandboxID, Object: in.SnapshotID + in.Path, Command: in.Command + in.Code,
	}
	const longest = 64
	r.Action, r.SandboxID = r.Action[:min(len(r.Action), longest)], r.SandboxID[:min(len(r.SandboxID), longest)]
	o := bothy.OriginFrom(ctx)
	r.RequestID, r.Remote = o.RequestID, o.Remote
	if c := bothy.CallerFrom(ctx); c != nil {
		r.ProjectID, r.TokenID, r.TokenName = c.ProjectID, c.TokenID, c.TokenName
	}
	return r
}

// note adds a tool's result to the record of its call.
func note(ctx context.Context, out any, err error) {
	r, ok := ctx.Value(recordKey{}).(*bothy.AuditRecord)
	if !ok {
		return
	}
	if err != nil {
		r.Code = bothy.AsError(err).Code
		return
	}
	switch x := out.(type) {
	case *bothy.Sandbox:
		r.SandboxID = x.ID
	case *bothy.Snapshot:
		r.Object = x.ID
	}
}

// statusOf is the HTTP status with which the other APIs would answer, if it shows what was
// refused.
func statusOf(c bothy.Code) int {
	switch {
	case c == "":
		return http.StatusOK
	case c == bothy.CodeForbidden:
		return http.StatusForbidden
	case c == bothy.CodeUnauthenticated || c == bothy.CodeTokenExpired:
		return http.StatusUnauthorized
	case strings.HasSuffix(string(c), "not_found"):
		return http.StatusNotFound
	case c == bothy.CodeInternal || c == bothy.CodeEngine:
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}
