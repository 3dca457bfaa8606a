package bothy

import (
	"context"
	"time"
)

// AuditRecord is one action that someone performed or attempted.
//
// Records form a chain: Hash is the SHA-256, in hex, of the hash of the record
// before (nothing for the first), a newline, and the record itself as JSON
// without its hash. So none can later be changed, removed or inserted without
// changing all that follow.
type AuditRecord struct {
	// ID counts records without gaps.
	ID   int64     `json:"id"`
	Time time.Time `json:"time"`
	// ProjectID, TokenID and TokenName say who. They are empty if no key was
	// recognised.
	ProjectID string `json:"project,omitempty"`
	TokenID   string `json:"token_id,omitempty"`
	TokenName string `json:"token_name,omitempty"`
	// LinkID is the id of the link that was used, which the token created.
	LinkID string `json:"link_id,omitempty"`
	// Action is the id of an operation of the API, such as create-sandbox, or
	// mcp: and the name of a tool, or request where nothing was recognised.
	Action string `json:"action"`
	// SandboxID and Object say to what: Object is a file, a process, a snapshot,
	// a token, a project or a template.
	SandboxID string `json:"sandbox_id,omitempty"`
	Object    string `json:"object,omitempty"`
	// Command is what was run, shortened, without anything that looks like a
	// key.
	Command string `json:"command,omitempty"`
	// Remote is the address that the request came from, without its port.
	Remote    string `json:"remote,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	// Status is the HTTP status of the answer. Code is empty if the action
	// succeeded.
	Status     int   `json:"status"`
	Code       Code  `json:"code,omitempty"`
	DurationMS int64 `json:"duration_ms"`
	// Count is how many refused attempts, or requests to ports, this record stands
	// for, where they came too quickly for one each.
	Count int    `json:"count,omitempty"`
	Hash  string `json:"hash,omitempty"`
}

// AuditFilter chooses records. Zero fields choose all.
type AuditFilter struct {
	Since, Until time.Time
	Action       string
	TokenID      string
	SandboxID    string
	ProjectID    string
	// Refused chooses what was answered with 401, 403 or 404.
	Refused bool
	// Oldest begins with the oldest record, and not with the newest.
	Oldest bool
	// Cursor is the id of the last record of the page before.
	Cursor int64
	Limit  int
}

// AuditCheck is what became of checking the chain.
type AuditCheck struct {
	OK bool `json:"ok"`
	// Records is how many were checked; First and Last are their ids.
	Records int64 `json:"records"`
	First   int64 `json:"first"`
	Last    int64 `json:"last"`
	// Head is the hash of the last record. An operator who keeps it elsewhere can prove
	// later that nothing up to it was changed.
	Head string `json:"head"`
	// Broken is the first record that was altered, and Detail says what is
	// wrong with it.
	Broken int64  `json:"broken,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// AuditService shows who did what. All of it wants ScopeAdmin.
type AuditService interface {
	// Audit returns a page of records, of the caller's project, or of all for
	// the default project. NextCursor is the Cursor of the next page.
	Audit(ctx context.Context, f AuditFilter) (Page[AuditRecord], error)
	// CheckAudit checks the whole chain, for the default project only. Where
	// head is not empty it must be the hash of the record with the id at.
	CheckAudit(ctx context.Context, at int64, head string) (*AuditCheck, error)
}

// AuditRecorder records what was done.
type AuditRecorder interface {
	// Admit reports whether what is about to be done can be recorded; the error
	// is for the caller. Whatever is done must be admitted first.
	Admit() error
	// Record keeps a record. Its ID and Hash are set later.
	Record(r AuditRecord)
	// RecordUse is Record for requests that come in crowds. Those that change
	// nothing may be counted together.
	RecordUse(r AuditRecord, changes bool)
}

// Origin is what an API knows of a request besides its caller.
type Origin struct {
	RequestID string
	// Remote is the address that the request came from, without its port.
	Remote string
	// Scheme is http or https, and Host the name and port, as the client called.
	Scheme, Host string
}

type originKey struct{}

// WithOrigin puts the origin of a request in the context. Only doors do this.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginFrom returns the origin of a request; it is empty where there is none.
func OriginFrom(ctx context.Context) Origin {
	o, _ := ctx.Value(originKey{}).(Origin)
	return o
}
