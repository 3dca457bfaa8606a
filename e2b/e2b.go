// Package e2b implements E2B's API: its SDKs for Python and JavaScript, and programs built on
// them, work unchanged when given this server's address. It translates E2B's protocol into calls
// of the same services that the other APIs use, one file for each group of routes, and keeps no
// state.
//
// server mounts Routes next to the REST API, and lets the Door handle requests for ports of
// sandboxes first. The middleware of every call, such as authentication and the audit, is that
// of the REST API.
package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
)

// Services are the services behind the API.
type Services struct {
	Sandboxes bothy.SandboxService
	Snapshots bothy.SnapshotService
	Templates bothy.TemplateService
	Builder   bothy.TemplateBuilder
	Code      bothy.CodeService
	Metrics   bothy.MetricsService
	Logs      bothy.LogService
	Limits    bothy.LimitsService
	Events    Events
	Webhooks  bothy.WebhookService
	Guests    Guests
	Keys      Keys
	Server    Server
}

// Guests reaches the agents in sandboxes; see lifecycle.Service.
type Guests interface {
	GuestHTTP(id string, r *http.Request) (*http.Response, error)
}

// Events tells what happened, from either end; see lifecycle.Service.
type Events interface {
	bothy.EventService
	// EventsBackwards calls fn for the caller's events, the latest first, until it fails.
	EventsBackwards(ctx context.Context, fn func(bothy.Event) error) error
}

// Keys finds keys by their ids; see access.Tokens.
type Keys interface {
	HoldID(ctx context.Context, projectID, id string, end func(error)) (*bothy.Caller, func(), error)
	IDs(ctx context.Context, projectID string) ([]string, error)
}

// Server is what the package needs of the server.
type Server interface {
	// ServePort handles a request for a port of a sandbox as one of the given call, on behalf of
	// the caller that hold finds.
	ServePort(w http.ResponseWriter, r *http.Request, c Call,
		hold func(end func(error)) (*bothy.Caller, func(), error), h Handler)
	// ShowPort shows a port of a sandbox to the caller in the request's context.
	ShowPort(w http.ResponseWriter, r *http.Request, sandbox string, port uint16)
	// Note records for the audit what a call was about.
	Note(r *http.Request, sandbox, object, command string)
	// Find looks up a sandbox of any project.
	Find(ctx context.Context, id string) (*bothy.Sandbox, error)
	// Alive lists the running and paused sandboxes of all projects.
	Alive(ctx context.Context) ([]*bothy.Sandbox, error)
}

// Config holds the operator's settings.
type Config struct {
	// Templates maps E2B's template names to templates of this server.
	Templates map[string]string
	// PublicPorts lets anyone who knows the address use sandboxes' ports, as
	// E2B does unless asked not to.
	PublicPorts bool
	// Domain is the domain below which ports have names, with a port unless it is the scheme's
	// default.
	Domain func() string
	// Secret is the key that access tokens are derived from.
	Secret []byte
	Log    *slog.Logger
}

// Door answers E2B's clients.
type Door struct {
	Services
	config   Config
	proxy    *httputil.ReverseProxy // to the agents
	used     cpuSeen
	prepared prepared
	once     once
	builds   builds
	// searching limits the concurrent requests that search for the sandbox of a signed address.
	searching chan struct{}
	now       func() time.Time
}

// New returns a door to the services.
func New(s Services, c Config) *Door {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	d := &Door{Services: s, config: c, now: time.Now, searching: make(chan struct{}, 2)}
	d.proxy = d.agentProxy()
	return d
}

// Call describes one operation.
type Call struct {
	// Pattern is its pattern for http.ServeMux; empty for calls to a port of a sandbox.
	Pattern string
	// ID names it in the record of who did what.
	ID    string
	Scope bothy.Scope
	// Stream marks a call that does not end by itself, Audit one that is recorded although it
	// changes nothing, and Reads one that changes nothing although its method is not GET.
	Stream, Audit, Reads bool
	// Hold finds the caller of a request without a key; see api.
	Hold func(r *http.Request, end func(error)) (*bothy.Caller, func(), error)
}

// Handler answers a request, or returns the error that it did not answer with.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Route is a call and its handler.
type Route struct {
	Call
	Handler Handler
}

// Routes are those of the control API.
func (d *Door) Routes() []Route {
	var all []Route
	for _, group := range [][]Route{
		d.sandboxRoutes(), d.sleepRoutes(), d.snapshotRoutes(), d.networkRoutes(), d.meterRoutes(), d.templateRoutes(), d.tagRoutes(), d.buildRoutes(), d.eventRoutes(), d.webhookRoutes(),
		d.absentRoutes(),
	} {
		all = append(all, group...)
	}
	return all
}

func route(pattern, id string, scope bothy.Scope, h Handler) Route {
	return Route{Call{Pattern: pattern, ID: "e2b:" + id, Scope: scope}, h}
}

// ownKeyLength is the number of digits of a key that was not made for E2B's clients.
const ownKeyLength = 64

// KeyOf finds the key in a client's request. Since many clients only accept keys that begin with
// e2b_, any key of this server also works with that prefix instead of its own, as `bothy e2b
// env` prints it.
func KeyOf(r *http.Request) string {
	key := r.Header.Get("X-Api-Key")
	if key == "" {
		key, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	if digits, ok := strings.CutPrefix(key, "e2b_"); ok && len(digits) == ownKeyLength {
		return "bothy_" + digits
	}
	return key
}

// Limits of the bodies of the control API. A decoded value takes many times its bytes.
const (
	maxBody   = 4 << 20
	maxDepth  = 100
	maxValues = 100_000
)

// read decodes a body. An empty one leaves v unchanged.
func read(w http.ResponseWriter, r *http.Request, v any) error {
	err := bounded.JSON(r.Context(), http.MaxBytesReader(w, r.Body, maxBody), v, bounded.JSONLimits{Bytes: maxBody, Depth: maxDepth, Values: maxValues})
	var large *http.MaxBytesError
	var limit *bounded.Error
	var e *bothy.Error
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return nil
	case errors.As(err, &large):
		return bothy.Errorf(bothy.CodeTooLarge, "the body is larger than %d bytes", int64(maxBody))
	case errors.As(err, &limit):
		return bothy.Errorf(bothy.CodeTooLarge, "the body has %v", limit)
	case errors.As(err, &e):
		return e
	}
	return invalid("the body is not what this call takes: %v", err)
}

func reply(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(v)
}

func done(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}
