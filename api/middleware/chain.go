// Package middleware is the chain around every request of the API: its id, the check of
// its host, the log, recovery from panics, authentication, scope, the audit, limits on
// requests in flight, and idempotency. It deals with requests and answers, not with
// particular operations.
package middleware

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access/session"
	"github.com/bothy-dev/bothy/api/inflight"
	"github.com/bothy-dev/bothy/store"
)

// Options are what the chain needs from the server.
type Options struct {
	// Tokens authenticates every request, and is required.
	Tokens bothy.TokenService
	// Sessions are the logins of browsers. Optional.
	Sessions *session.Store
	// Recorder keeps the record of who did what. Optional.
	Recorder bothy.AuditRecorder
	// Answers remembers answers for Idempotency-Key. Optional.
	Answers AnswerStore
	// Inflight limits the server's resources that requests hold. Optional.
	Inflight *inflight.Limits
	// Log gets one line per request; slog.Default() when nil.
	Log *slog.Logger
	// TrustedProxies are those whose X-Forwarded-For and X-Forwarded-Proto are trusted.
	TrustedProxies []netip.Prefix
	// AuditReads also records calls that change nothing.
	AuditReads bool
	// Observe is called for every answered request, with its route, which may
	// be empty, and its status. Optional.
	Observe func(method, route string, status int, took time.Duration)
	// Route answers a request that has an id and a recorder.
	Route http.HandlerFunc
}

// AnswerStore is what idempotency needs of store.Store.
type AnswerStore interface {
	ReserveAnswer(ctx context.Context, projectID, key, fingerprint string) (*store.Answer, error)
	ReserveOnce(ctx context.Context, projectID, key, fingerprint string) (*store.Answer, error)
	StoreAnswer(ctx context.Context, projectID, key string, a store.Answer) error
	ForgetAnswer(ctx context.Context, projectID, key string) error
}

// Chain wraps every request, in this order: id, recorder of the answer, log, audit and recovery
// from panics; then, for a call, authentication, scope, room in the audit, room among the
// requests in flight, and idempotency.
type Chain struct {
	Options
	*Life

	Hosts HostCheck
	// settling bounds how many refused bodies are read to their end at the same time.
	settling chan struct{}
}

// NewChain makes a chain.
func NewChain(o Options) *Chain {
	o.Log = cmp.Or(o.Log, slog.Default())
	return &Chain{Options: o, Life: newLife(), settling: make(chan struct{}, maxRefused)}
}
