// Package ports gives access to servers inside sandboxes: as tunnels of one TCP connection, with SSH,
// as a proxy below a path of the API, and under their own host names, which links open.
// What a sandbox serves must not share this server's origin, keys or logins.
package ports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type portInput struct {
	ID   string `path:"id" doc:"The sandbox's id."`
	Port uint16 `path:"port" minimum:"1" maximum:"65535" doc:"The TCP port inside the sandbox."`
}

const portPath = "/v1/sandboxes/{id}/ports/{port}"

// Config is what ports need.
type Config struct {
	// Ports may be nil: then there are no routes.
	Ports     bothy.PortService
	Links     bothy.LinkService
	Sandboxes bothy.SandboxService
	// LinkKey signs links; without it there are none. LinkDomain is the domain below which ports
	// have names, "localhost" when empty.
	LinkKey    []byte
	LinkDomain string
	// SSH may be nil: then there is none. The sandboxes' host keys are derived from HostKeySecret,
	// which is random when empty.
	SSH           bothy.SSHService
	HostKeySecret []byte
	// TLS says that the listener itself uses TLS. Addr is its address, or nil.
	TLS  bool
	Addr func() net.Addr
}

// Ports serves access to the servers inside sandboxes: as tunnels, below a path of
// the API, and under their own host names, with links.
type Ports struct {
	*middleware.Chain
	Config
	registry *openapi.Registry
	proxy    *httputil.ReverseProxy
}

// New adds the operations for ports and links.
func New(registry *openapi.Registry, chain *middleware.Chain, config Config) *Ports {
	s := &Ports{Chain: chain, Config: config, registry: registry}
	if s.Config.Ports != nil {
		s.register()
	}
	return s
}

func (s *Ports) register() {
	openapi.Add(s.registry, middleware.Operation{
		ID: "forward-port", Audit: true, Method: http.MethodGet, Path: portPath, Tag: "Network",
		Summary: "Connect to a port", Scope: bothy.ScopeSandboxesWrite, Status: http.StatusSwitchingProtocols,
		Text: "A WebSocket that carries the bytes of one TCP connection in binary frames, both ways. " +
			"Servers that listen only on the sandbox's own loopback can be reached, too. " +
			"For HTTP servers there is also `/v1/sandboxes/{id}/ports/{port}/…`: any request there, with any method, goes to the " +
			"server in the sandbox, including WebSockets. The key is removed on the way.",
	}, func(_ context.Context, in *portInput) (*openapi.Response, error) {
		return openapi.Respond(func(w http.ResponseWriter, r *http.Request) { s.serveTunnel(w, r, in) }), nil
	})
	s.registerSSH()
	s.registerLinks()
	s.proxy = s.newPortProxy()
	s.registry.Mount(ProxyOperation, s.serveProxyPath)
	s.registerCDP()
}

// ProxyOperation is the operation that reaches a port through the server, by any method.
var ProxyOperation = middleware.Operation{
	ID: "proxy-port", Audit: true, Method: http.MethodGet, Path: portPath + "/{rest...}", Scope: bothy.ScopeSandboxesWrite, Raw: true,
}

// serveTunnel carries one TCP connection over a WebSocket.
func (s *Ports) serveTunnel(w http.ResponseWriter, r *http.Request, in *portInput) {
	if r.Header.Get("Upgrade") == "" {
		s.Fail(w, r, middleware.NeedsSocket(fmt.Sprintf("Use `bothy forward`, an SDK's forward, or add a slash for HTTP: /ports/%d/.", in.Port)))
		return
	}
	conn, err := s.Ports.DialPort(r.Context(), in.ID, in.Port)
	if err != nil {
		s.Fail(w, r, err)
		return
	}
	s.serveStream(w, r, conn)
}

// serveStream upgrades a request to a WebSocket that carries the bytes of a connection.
func (s *Ports) serveStream(w http.ResponseWriter, r *http.Request, conn net.Conn) {
	defer conn.Close()
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	defer s.Upgraded()()
	ctx, cancel := s.Following(r.Context())
	defer cancel()
	ws.SetReadLimit(middleware.MaxFrame)
	// The end of a key also ends the connection, whose end may be noticed first.
	if carry(ctx, ws, conn) && ctx.Err() == nil {
		_ = ws.Close(websocket.StatusNormalClosure, "")
	}
	s.Leave(ctx, ws)
}

// carry moves bytes until the sandbox's side ends (true), or the caller's. A WebSocket cannot be
// half-closed, so either end ends both.
func carry(ctx context.Context, ws *websocket.Conn, conn net.Conn) (ended bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go middleware.PingUntilGone(ctx, ws, cancel)
	go func() {
		defer cancel()
		// As in serveTerm, ending a context would cut the connection.
		for {
			_, data, err := ws.Read(context.Background())
			if err != nil {
				return
			}
			if _, err := conn.Write(data); err != nil {
				return
			}
		}
	}()
	stop := context.AfterFunc(ctx, func() {
		conn.Close()
		// A caller that does not read would block the last frame forever.
		time.AfterFunc(middleware.CutAfter, func() { _ = ws.CloseNow() })
	})
	defer stop()
	buf := make([]byte, 32<<10)
	for {
		n, err := conn.Read(buf)
		if n > 0 && ws.Write(context.Background(), websocket.MessageBinary, buf[:n]) != nil {
			return false
		}
		if err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// Target is a port of a sandbox, and the path under which it is served, if it is served below
// one. ownHost means that the port has a host name of its own, and linked that the request came
// with a link instead of a key.
type Target struct {
	Sandbox string
	Port    uint16
	prefix  string
	ownHost bool
	Linked  bool
	// KeepHost passes the Host header on as it is. Otherwise the server inside sees localhost, for
	// many servers of web applications refuse all other names.
	KeepHost bool
}

// inside is the address by which a server in the sandbox is named to itself.
func (t Target) inside() string { return fmt.Sprintf("localhost:%d", t.Port) }

type portTargetKey struct{}

func targetOf(ctx context.Context) Target {
	t, _ := ctx.Value(portTargetKey{}).(Target)
	return t
}

// newPortProxy proxies to the HTTP servers inside sandboxes. The request's context names the
// target.
func (s *Ports) newPortProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:      newPortTransport(s.Ports),
		FlushInterval:  partFlush,
		BufferPool:     &proxyBuffers,
		Rewrite:        rewritePort,
		ModifyResponse: confine,
		ErrorLog:       slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			var e *bothy.Error
			if !errors.As(err, &e) && !errors.Is(err, context.Canceled) {
				t := targetOf(r.Context())
				err = bothy.Errorf(bothy.CodeGuest, "the server on port %d of %s did not give an answer in HTTP", t.Port, t.Sandbox).
					WithHint("See whether it still runs, with `bothy ps`; for other protocols use `bothy forward` or an SDK's forward.").Because(err)
			}
			s.Fail(w, r, err)
		},
	}
}

// ourKey recognises this server's keys, which nothing in a sandbox may see.
var ourKey = regexp.MustCompile(`(?i)^\s*(bearer\s+)?(bothy|e2b)_\w*\s*$`)

// rewritePort turns the request into what the server in the sandbox expects. Keys are for this
// server, not for programs in the sandbox.
func rewritePort(p *httputil.ProxyRequest) {
	t := targetOf(p.In.Context())
	out := p.Out
	out.URL.Scheme, out.URL.Host = "http", t.inside()
	out.Host = out.URL.Host
	if t.KeepHost {
		out.Host = p.In.Host
	} else if own := middleware.SchemeOf(p.In) + "://" + p.In.Host; t.prefix == "" {
		// A page's own requests must not look like those of a foreign page.
		for _, name := range []string{"Origin", "Referer"} {
			if rest, ok := strings.CutPrefix(out.Header.Get(name), own); ok && (rest == "" || rest[0] == '/') {
				out.Header.Set(name, "http://"+t.inside()+rest)
			}
		}
	}
	if !t.Linked {
		out.Header.Del("Authorization")
	}
	for name, values := range out.Header { // E2B's clients send theirs in X-Api-Key
		if slices.ContainsFunc(values, ourKey.MatchString) {
			out.Header.Del(name)
		}
	}
	stripLinkCookie(out.Header)
	out.Header.Del("X-Real-Ip")
	p.SetXForwarded()
	out.Header.Set("X-Forwarded-For", middleware.RemoteOf(p.In))
	out.Header.Set("X-Forwarded-Proto", middleware.SchemeOf(p.In))
	if t.prefix == "" {
		return
	}
	rest := strings.TrimPrefix(p.In.URL.EscapedPath(), t.prefix)
	if path, err := url.PathUnescape(rest); err == nil {
		out.URL.Path, out.URL.RawPath = path, rest
	}
	out.Header.Set("X-Forwarded-Prefix", t.prefix)
}

// toProxies are headers with which a server makes a proxy in front of it send something else.
var toProxies = []string{"X-Accel-Redirect", "X-Sendfile", "X-Lighttpd-Send-File", "X-Reproxy-Url"}

// keepFromCaches removes what would let a cache store an answer: under this server's own name it
// would be sent to others, as if it were this server's.
func keepFromCaches(h http.Header) {
	for name := range h {
		if strings.HasSuffix(name, "Cache-Control") || name == "Expires" || name == "Surrogate-Control" || name == "X-Accel-Expires" {
			h.Del(name)
		}
	}
}

// confine restricts an answer that is served under our own name, so that its scripts and cookies
// get no access to the rest.
func confine(res *http.Response) error {
	h := res.Header
	h.Del("X-Request-Id")
	h.Del("Clear-Site-Data") // it would clear the cookies of sibling hosts, too
	for _, name := range toProxies {
		h.Del(name)
	}
	t := targetOf(res.Request.Context())
	if !t.ownHost {
		keepFromCaches(h)
		h.Set("Content-Security-Policy", "sandbox allow-scripts allow-forms allow-popups allow-modals")
	}
	at := h.Get("Location")
	for _, scheme := range []string{"http", "https"} { // of a server that gives its whole address
		if rest, ok := strings.CutPrefix(at, scheme+"://"+t.inside()); ok && !t.KeepHost && (rest == "" || strings.ContainsRune("/?#", rune(rest[0]))) {
			if !strings.HasPrefix(rest, "/") {
				rest = "/" + rest
			}
			at = "/" + strings.TrimLeft(rest, `/\`) // two slashes would lead to another host
			h.Set("Location", at)
			break
		}
	}
	if t.prefix == "" {
		confineCookies(h)
		return nil
	}
	if strings.HasPrefix(at, "/") && !strings.HasPrefix(at, "//") {
		h.Set("Location", t.prefix+at)
	}
	cookies := res.Cookies()
	h.Del("Set-Cookie")
	for _, c := range cookies {
		c.Domain = ""
		if !strings.HasPrefix(c.Path, "/") {
			c.Path = "/"
		}
		c.Path = t.prefix + c.Path
		h.Add("Set-Cookie", c.String())
	}
	return nil
}

type fullURLKey struct{}

// proxied is a path below a port of a sandbox.
var proxied = regexp.MustCompile(`^/v1/sandboxes/[^/.][^/]*/ports/[^/.][^/]*/`)

// AsItIs returns the request for a router, which would redirect a path that has "//" or ".." in it to
// a clean one: below a port the path belongs to the server in the sandbox.
func AsItIs(r *http.Request) *http.Request {
	prefix := proxied.FindString(r.URL.EscapedPath())
	if prefix == "" {
		return r
	}
	short, err := url.ParseRequestURI(prefix)
	if err != nil {
		return r
	}
	full := r.URL
	r = r.WithContext(context.WithValue(r.Context(), fullURLKey{}, full))
	short.RawQuery = full.RawQuery
	r.URL = short
	return r
}

// serveProxyPath serves /v1/sandboxes/{id}/ports/{port}/….
func (s *Ports) serveProxyPath(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.ParseUint(r.PathValue("port"), 10, 16)
	if err != nil || port == 0 {
		s.Fail(w, r, bothy.Errorf(bothy.CodeInvalid, "path parameter port: %q is not a port", r.PathValue("port")).
			WithHint("Give a number from 1 to 65535."))
		return
	}
	if full, ok := r.Context().Value(fullURLKey{}).(*url.URL); ok {
		r.URL = full
	}
	id := r.PathValue("id")
	s.ShowPort(w, r, Target{
		Sandbox: id, Port: uint16(port), prefix: "/v1/sandboxes/" + url.PathEscape(id) + "/ports/" + r.PathValue("port"),
	})
}

func (s *Ports) ShowPort(w http.ResponseWriter, r *http.Request, t Target) {
	r, err := s.Admit(r)
	if err != nil {
		s.Fail(w, r, err)
		return
	}
	// What a sandbox serves is not this server's page, so our headers do not apply.
	w.Header().Del("X-Content-Type-Options")
	if _, t.ownHost = s.LinkTarget(r.Host); t.ownHost {
		w.Header().Del("Cache-Control")
	} else {
		w.Header().Set("Cache-Control", "private, no-store")
		w.Header()["Vary"] = []string{"Authorization, E2b-Sandbox-Id, E2b-Sandbox-Port, E2b-Traffic-Access-Token, X-Access-Token"}
	}
	ctx := context.WithValue(r.Context(), portTargetKey{}, t)
	if info := middleware.RequestFrom(ctx); info != nil {
		info.Use = s.UseOf(r, t)
	}
	if r.Header.Get("Upgrade") != "" { // net/http forgets about these
		defer s.Upgraded()()
		var cancel context.CancelFunc
		ctx, cancel = s.Following(ctx)
		defer cancel()
	}
	s.proxy.ServeHTTP(w, r.WithContext(ctx))
	sendWhole(w)
}

// UseOf describes a request to a port, without the query, which may contain secrets.
func (s *Ports) UseOf(r *http.Request, t Target) *middleware.PortUse {
	path := strings.TrimPrefix(r.URL.Path, t.prefix)
	return &middleware.PortUse{Sandbox: t.Sandbox, Object: fmt.Sprintf("%d %s %s", t.Port, r.Method, path), Changes: middleware.Changes(r)}
}
