// Package client talks to a Bothy server over its REST API. It implements the
// service interfaces of the root package, so that code written against them
// (the CLI, the MCP server on stdin) works with it and inside the server alike.
package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// CodeUnreachable is the code of errors if no server was reached, or its answer broke off.
const CodeUnreachable bothy.Code = "server_unreachable"

// Client is a server, seen from outside. Its fields are the server's services; the caller is the
// owner of the key, not the one in the context.
type Client struct {
	Sandboxes *Sandboxes
	Exec      *Exec
	Code      *Code
	Shells    *Shells
	Files     *Files
	Snapshots *Snapshots
	Templates *Templates
	Builder   *Builder
	Tokens    *Tokens
	Events    *Events
	Network   *Network
	Metrics   *Metrics
	Ports     *Ports
	Links     *Links
	Webhooks  *Webhooks
	Agents    *Agents
	Hosts     *Hosts
	Mover     *Mover
	Logs      *Logs
	Limits    *Limits
	Host      *Host
	Projects  *Projects
	Usage     *Usage
	Audit     *Audit

	conn *conn
}

// Option changes a client.
type Option func(*conn)

// WithHTTPClient makes the client use h, for tests and special transports.
func WithHTTPClient(h *http.Client) Option { return func(c *conn) { c.http = h } }

// WithUserAgent sets the client's User-Agent.
func WithUserAgent(s string) Option { return func(c *conn) { c.agent = s } }

// New returns a client of the server at baseURL, such as
// http://127.0.0.1:7700. It does not connect yet.
func New(baseURL, key string, opts ...Option) *Client {
	c := &conn{base: strings.TrimRight(baseURL, "/"), key: key, agent: "bothy-go"}
	for _, o := range opts {
		o(c)
	}
	if c.http == nil {
		c.http = &http.Client{Transport: Transport()}
	}
	return &Client{
		Sandboxes: &Sandboxes{c}, Exec: &Exec{c}, Code: &Code{c}, Shells: &Shells{c}, Files: &Files{c}, Snapshots: &Snapshots{c},
		Templates: &Templates{c}, Builder: &Builder{c}, Tokens: &Tokens{c}, Events: &Events{c}, Network: &Network{c}, Metrics: &Metrics{c}, Ports: &Ports{c}, Links: &Links{c}, Webhooks: &Webhooks{c}, Agents: &Agents{c}, Hosts: &Hosts{c},
		Mover: &Mover{c}, Logs: &Logs{c}, Limits: &Limits{c}, Host: &Host{c}, Projects: &Projects{c}, Usage: &Usage{c}, Audit: &Audit{c}, conn: c,
	}
}

// CAFileEnv names a file with certificate authorities to trust in addition to those of the host,
// in PEM, for servers with a certificate of a private authority.
const CAFileEnv = "BOTHY_CA_FILE"

// Transport is the default transport of clients. It has no time limits on answers: a command may
// run for days.
func Transport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	t.DisableCompression = true
	t.ExpectContinueTimeout = 2 * time.Second
	// Each stream of a command has a connection of its own, so that one that is not read holds up
	// no other.
	t.ForceAttemptHTTP2, t.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
	t.TLSClientConfig = &tls.Config{NextProtos: []string{"http/1.1"}}
	file := os.Getenv(CAFileEnv)
	if file == "" {
		return t
	}
	roots, err := rootsWith(file)
	if err != nil {
		return broken{err}
	}
	t.TLSClientConfig.RootCAs = roots
	return t
}

func rootsWith(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the certificates in %s cannot be read", file).
			WithHint("Check the path in %s, or unset it.", CAFileEnv).Because(err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, bothy.Errorf(bothy.CodeInvalid, "%s holds no certificate", file).WithHint("%s must name a file of certificates in PEM.", CAFileEnv)
	}
	return pool, nil
}

// broken sends nothing.
type broken struct{ err error }

func (b broken) RoundTrip(*http.Request) (*http.Response, error) { return nil, b.err }

// URL is the server's base URL.
func (c *Client) URL() string { return c.conn.base }

// Do sends any request and returns the answer's JSON exactly as the server
// wrote it, or nil for an empty answer. body is nil or becomes JSON.
func (c *Client) Do(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	var raw json.RawMessage
	err := c.conn.call(ctx, method, path, nil, body, &raw)
	return raw, err
}

// Stream sends any request whose answer is a stream of events, and calls fn with the JSON of
// each, exactly as the server wrote it. It returns nil when the server has ended the stream.
func (c *Client) Stream(ctx context.Context, method, path string, body any, fn func(json.RawMessage) error) error {
	return c.conn.events(ctx, method, path, nil, body, fn)
}

// Health returns nil when a server answers.
func (c *Client) Health(ctx context.Context) error {
	return c.conn.call(ctx, http.MethodGet, "/healthz", nil, nil, nil)
}

type idempotencyKey struct{}

// WithIdempotencyKey makes the next changing call with this context safe to repeat: a repetition
// with the same key has no further effect, and gets the first answer.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, idempotencyKey{}, key)
}

func sandboxPath(id string, parts ...string) string {
	return "/v1/sandboxes/" + url.PathEscape(id) + strings.Join(parts, "")
}

var (
	_ bothy.SandboxService  = (*Sandboxes)(nil)
	_ bothy.ExecService     = (*Exec)(nil)
	_ bothy.CodeService     = (*Code)(nil)
	_ bothy.FileService     = (*Files)(nil)
	_ bothy.SnapshotService = (*Snapshots)(nil)
	_ bothy.TemplateService = (*Templates)(nil)
	_ bothy.TemplateBuilder = (*Builder)(nil)
	_ bothy.TokenService    = (*Tokens)(nil)
	_ bothy.EventService    = (*Events)(nil)
	_ bothy.NetworkService  = (*Network)(nil)
	_ bothy.MetricsService  = (*Metrics)(nil)
	_ bothy.PortService     = (*Ports)(nil)
	_ bothy.UsageService    = (*Usage)(nil)
)
