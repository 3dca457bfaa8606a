package bothy

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// Scope is one power of a token.
type Scope string

// The scopes. Admin implies all the others.
const (
	ScopeSandboxesRead  Scope = "sandboxes:read"
	ScopeSandboxesWrite Scope = "sandboxes:write"
	ScopeTemplatesRead  Scope = "templates:read"
	ScopeTemplatesWrite Scope = "templates:write"
	// ScopeMetricsRead is for programs that collect the server's metrics, in the default
	// project.
	ScopeMetricsRead Scope = "metrics:read"
	ScopeAdmin       Scope = "admin"
)

// AllScopes lists every scope.
var AllScopes = []Scope{ScopeSandboxesRead, ScopeSandboxesWrite, ScopeTemplatesRead, ScopeTemplatesWrite, ScopeMetricsRead, ScopeAdmin}

// DefaultProject is the project that `bothy up` makes.
const DefaultProject = "default"

// Token is a key without its secret, of which only a hash is stored.
type Token struct {
	ID         string     `json:"id"`
	Name       string     `json:"name,omitempty"`
	ProjectID  string     `json:"project"`
	Scopes     []Scope    `json:"scopes"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
	// Key is set only in the answer that creates the token.
	Key string `json:"key,omitempty"`
}

// TokenCreate is a request for a new token.
type TokenCreate struct {
	Name      string     `json:"name,omitempty"`
	ProjectID string     `json:"project,omitempty"`
	Scopes    []Scope    `json:"scopes,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// E2B makes a key of the form that E2B's SDKs ask for.
	E2B bool `json:"e2b,omitempty"`
}

// Caller is the identity behind a request.
type Caller struct {
	ProjectID string
	TokenID   string
	TokenName string
	Scopes    []Scope
	// ExpiresAt is when the token does, or nil.
	ExpiresAt *time.Time
	// LinkID is set where the caller holds a link that the token made.
	LinkID string
}

// Can reports whether the caller holds a scope.
func (c *Caller) Can(s Scope) bool {
	return c != nil && (slices.Contains(c.Scopes, s) || slices.Contains(c.Scopes, ScopeAdmin))
}

type callerKey struct{}

// WithCaller puts the caller in the context. Only the doors (api, mcp, e2b)
// and tests do this.
func WithCaller(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns the caller, or nil.
func CallerFrom(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// Require returns the caller if it holds the scope, and otherwise
// CodeUnauthenticated or CodeForbidden.
func Require(ctx context.Context, s Scope) (*Caller, error) {
	c := CallerFrom(ctx)
	if c == nil {
		return nil, Errorf(CodeUnauthenticated, "no API key was given").
			WithHint("Send the header \"Authorization: Bearer KEY\"; `bothy token create` makes a key.")
	}
	if !c.Can(s) {
		return nil, Errorf(CodeForbidden, "this key lacks the scope %s", s).
			WithHint("Make a key that has it: bothy token create --scope %s.", s)
	}
	return c, nil
}

// TokenService manages keys.
type TokenService interface {
	// Authenticate finds the caller behind a key: CodeUnauthenticated for an
	// unknown one, CodeTokenExpired for an expired one.
	Authenticate(ctx context.Context, key string) (*Caller, error)
	CreateToken(ctx context.Context, req TokenCreate) (*Token, error)
	// Tokens lists those of the caller's project, and for the operator those of all.
	Tokens(ctx context.Context) ([]*Token, error)
	// DeleteToken revokes one of them at once.
	DeleteToken(ctx context.Context, id string) error
}

// KeyHolder is a TokenService whose keys can be held for as long as something is
// done in their name.
type KeyHolder interface {
	// Hold is Authenticate, and calls end with the reason, for the caller to be told,
	// when the key is revoked or expires before release is called. It does so at once,
	// from any goroutine, and perhaps still while release is.
	Hold(ctx context.Context, key string, end func(cause error)) (c *Caller, release func(), err error)
}

// IsOperator reports whether the caller belongs to the default project, whose
// members run the server for the others.
func (c *Caller) IsOperator() bool { return c.ProjectID == DefaultProject }

// RequireOperator returns the caller if it holds the scope and belongs to the
// default project, whose members run the server for the others. Otherwise it is
// CodeUnauthenticated or CodeForbidden.
func RequireOperator(ctx context.Context, s Scope) (*Caller, error) {
	c, err := Require(ctx, s)
	if err == nil && !c.IsOperator() {
		return nil, Errorf(CodeForbidden, "only keys of the project %q may do this: it is for the whole server", DefaultProject).
			WithHint("Ask the operator of this server.")
	}
	return c, err
}

// Project owns sandboxes, snapshots, templates and keys, and has a plan.
type Project struct {
	// ID is the project's name, which its keys carry.
	ID        string    `json:"id"`
	Plan      string    `json:"plan"`
	CreatedAt time.Time `json:"created_at"`
	// Budget is what the project may spend in a calendar month, in UTC; nil is
	// no limit.
	Budget *BudgetState `json:"budget,omitempty"`
}

// ProjectCreate is a request for a new project.
type ProjectCreate struct {
	ID string `json:"id"`
	// Plan is one of Plans; DefaultPlan when empty.
	Plan string `json:"plan,omitempty"`
	// Budget is what it may spend in a month; 0 is no limit.
	Budget float64 `json:"budget,omitempty"`
}

// ProjectUpdate changes a project. Nil fields stay as they are.
type ProjectUpdate struct {
	Plan *string `json:"plan,omitempty"`
	// Budget is what it may spend in a month; 0 removes the limit.
	Budget *float64 `json:"budget,omitempty"`
}

// Plan says what a project may use. Nil and zero mean no limit other than the
// host's.
type Plan struct {
	Name string
	// Sandboxes bounds those that run at once. Paused ones do not count.
	Sandboxes *int
	// CPU, MemoryMB and DiskMB bound one sandbox.
	CPU      float64
	MemoryMB int
	DiskMB   int
	// TimeoutSeconds bounds the time that one sandbox may ask for. Where it is
	// set, sandboxes without a time-out are refused.
	TimeoutSeconds int
	// Networks are the modes that sandboxes may have; nil means all.
	Networks []NetworkMode
	// SnapshotsMB bounds what snapshots take up, in MiB.
	SnapshotsMB *int64
	// TemplatesMB limits the size of the project's own templates, in MiB.
	TemplatesMB *int64
	// CreatesPerMinute bounds how quickly sandboxes are made.
	CreatesPerMinute int
}

// The built-in plans.
const (
	PlanStarter   = "starter"
	PlanPro       = "pro"
	PlanTeam      = "team"
	PlanUnlimited = "unlimited"
	// DefaultPlan is that of projects whose maker names none. The default
	// project, which is the operator's own, has PlanUnlimited.
	DefaultPlan = PlanStarter
)

// Plans are the built-in plans by name.
var Plans = map[string]Plan{
	PlanStarter: {
		Name: PlanStarter, Sandboxes: new(1), CPU: 1, MemoryMB: 1024, DiskMB: 4096, TimeoutSeconds: 3600,
		Networks: []NetworkMode{NetworkOff, NetworkRestricted}, SnapshotsMB: new(int64(2 << 10)), TemplatesMB: new(int64(4 << 10)), CreatesPerMinute: 30,
	},
	PlanPro: {
		Name: PlanPro, Sandboxes: new(5), CPU: 2, MemoryMB: 4096, DiskMB: 16384, TimeoutSeconds: 24 * 3600,
		SnapshotsMB: new(int64(20 << 10)), TemplatesMB: new(int64(20 << 10)), CreatesPerMinute: 120,
	},
	PlanTeam: {
		Name: PlanTeam, Sandboxes: new(15), CPU: 4, MemoryMB: 8192, DiskMB: 65536,
		SnapshotsMB: new(int64(100 << 10)), TemplatesMB: new(int64(100 << 10)), CreatesPerMinute: 600,
	},
	PlanUnlimited: {Name: PlanUnlimited},
}

// PlanNames lists the built-in plans, for messages.
func PlanNames() string { return strings.Join(slices.Sorted(maps.Keys(Plans)), ", ") }

// ProjectService manages projects. Only the default project's admin may make
// and change them; the admin of another sees its own.
type ProjectService interface {
	// CreateProject makes a project: CodeConflict when there is one of the name.
	CreateProject(ctx context.Context, req ProjectCreate) (*Project, error)
	Project(ctx context.Context, id string) (*Project, error)
	Projects(ctx context.Context) ([]*Project, error)
	// UpdateProject changes a project. What is in use already is not touched by
	// a smaller plan; only more is refused.
	UpdateProject(ctx context.Context, id string, u ProjectUpdate) (*Project, error)
}

// NoSandbox is the error for a sandbox that does not exist, or is not the caller's: the answers
// must not differ.
func NoSandbox(id string) *Error {
	if strings.HasPrefix(id, "snp") {
		return Errorf(CodeSandboxNotFound, "there is no sandbox %q: that is the form of a snapshot's id", id).
			WithHint("Create a sandbox from the snapshot (snapshot_id), or look it up with GET /v1/snapshots/%s.", id)
	}
	return Errorf(CodeSandboxNotFound, "there is no sandbox %q", id).WithHint("List your sandboxes with `bothy ls --all` or GET /v1/sandboxes.")
}

// NoSnapshot is the same for a snapshot.
func NoSnapshot(id string) *Error {
	return Errorf(CodeSnapshotNotFound, "there is no snapshot %q", id).WithHint("List your snapshots with `bothy snapshots` or GET /v1/snapshots.")
}

// NoProject is the error for a project that does not exist, or is not the
// caller's.
func NoProject(id string) *Error {
	return Errorf(CodeProjectNotFound, "there is no project %q", id).WithHint("`bothy project ls` lists them.")
}
