package bothy

import (
	"context"
	"slices"
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
