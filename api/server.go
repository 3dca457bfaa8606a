// Package api is the REST server. It puts together the middleware, the operations, the
// ports and the document, and listens.
package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access/session"
	"github.com/bothy-dev/bothy/api/inflight"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
	"github.com/bothy-dev/bothy/api/ports"
	"github.com/bothy-dev/bothy/api/rest"
)

//go:generate go test -run ^TestDocumentFile$ . -update

// DefaultListen is the default address of the server.
const DefaultListen = "127.0.0.1:7700"

// Services is what the server gives access to.
type Services struct {
	rest.Services

	// Sessions are the logins of browsers. Optional.
	Sessions *session.Store
	// Recorder keeps the record of who did what. Optional.
	Recorder bothy.AuditRecorder
	// Answers remembers answers for Idempotency-Key. Without it the header is ignored.
	Answers middleware.AnswerStore
	// Inflight limits the server's resources that requests hold. Optional.
	Inflight *inflight.Limits
	// Log gets one line per request; slog.Default() when nil.
	Log *slog.Logger
}

// Config is where and how the server listens.
type Config struct {
	// Listen is a TCP address; DefaultListen when empty. Port 0 takes any.
	Listen string
	// AllowedHosts are additional names under which a loopback listener may be addressed, such
	// as that of a proxy in front of it. "*.example.com" allows the names below example.com.
	AllowedHosts []string
	// TrustedProxies are those whose X-Forwarded-For and X-Forwarded-Proto are trusted; from
	// elsewhere these headers are ignored.
	TrustedProxies []netip.Prefix
	// Grace is how long Drain and Close wait for requests in flight: 10 s if zero, not at all if
	// negative.
	Grace time.Duration
	// TLS is the listener's certificate; plain HTTP when nil. Name is the name in the
	// certificate; the address when empty.
	TLS  *tls.Config
	Name string
	// LinkKey signs links to ports; without it there are none. LinkDomain is
	// the domain below which ports have names, "localhost" when empty.
	LinkKey    []byte
	LinkDomain string
	// HostKeySecret is what the SSH host keys of sandboxes are derived from; random when empty.
	HostKeySecret []byte
	// Connections limits the number of connections, and ConnectionsPerAddress those from one
	// address of another host. 0 means no limit.
	Connections, ConnectionsPerAddress int
	// Observe is called for every answered request, with its route, which is empty if there is
	// none, and its status. Optional.
	Observe func(method, route string, status int, took time.Duration)
	// AuditReads also records calls that change nothing.
	AuditReads bool
	// Problems lists what is wrong with the server although it answers, for /healthz. Optional.
	Problems func() []string
	// Frozen says why the sandboxes of this host are frozen, for /healthz; "" if they are not.
	// Optional.
	Frozen func() string
	// Version is the server's version, for the OpenAPI document.
	Version string

	// times replaces waiting times in tests.
	times rest.Times
}

// Server is the API. Its life is New, Listen, Serve, Close; as an
// http.Handler it can be used without Listen.
type Server struct {
	config   Config
	chain    *middleware.Chain
	registry *openapi.Registry
	ports    *ports.Ports
	mux      *http.ServeMux
	// peers forwards requests to other hosts. Optional.
	peers Peers
	// outerPorts is another protocol's way to ports. Optional.
	outerPorts OuterPorts

	http     *http.Server
	listener net.Listener
	// deadline is the time until which Drain and Close wait.
	deadline time.Time
}

// New makes a server for the services.
func New(services Services, config Config) *Server {
	if config.Listen == "" {
		config.Listen = DefaultListen
	}
	if config.Grace == 0 {
		config.Grace = 10 * time.Second
	}
	s := &Server{config: config, mux: http.NewServeMux()}
	s.chain = middleware.NewChain(middleware.Options{
		Tokens: services.Tokens, Sessions: services.Sessions, Recorder: services.Recorder, Answers: services.Answers,
		Inflight: services.Inflight, Log: services.Log, TrustedProxies: config.TrustedProxies,
		AuditReads: config.AuditReads, Observe: config.Observe, Route: s.route,
	})
	s.http = &http.Server{
		Handler:           s.chain,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, SendPingTimeout: time.Minute},
		ErrorLog:          slog.NewLogLogger(s.chain.Log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return s.chain.Working() },
		ConnState:         middleware.ConnState,
		ConnContext:       middleware.ConnContext,
	}
	s.registry = openapi.NewRegistry(s.mux, s.chain, config.Version, "http://"+DefaultListen)
	s.ports = ports.New(s.registry, s.chain, ports.Config{
		Ports: services.Ports, Links: services.Links, Sandboxes: services.Sandboxes, LinkKey: config.LinkKey,
		LinkDomain: config.LinkDomain, SSH: services.SSH, HostKeySecret: config.HostKeySecret, TLS: config.TLS != nil, Addr: s.addr,
	})
	rest.Register(s.registry, s.chain, services.Services, config.times, config.Version)
	s.registerHealth()
	s.registry.Finish()
	s.mux.HandleFunc("/", s.noRoute)
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.chain.ServeHTTP(w, r) }

// Handle mounts a handler of another protocol, such as MCP. It gets the request's id, the log,
// the check of the Host header and the recovery from panics; it authenticates by itself or is
// wrapped by Authenticated. Endless answers to a GET end when the server is about to close, and
// every request ends with its key.
func (s *Server) Handle(pattern string, h http.Handler) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			// The handler itself checks whether the key is valid.
			known, err := s.chain.Authenticate(r)
			if err == nil {
				if r, err = s.chain.AdmitOther(known); err != nil {
					s.chain.Fail(w, r, err)
					return
				}
			}
		}
		if r.Method == http.MethodGet {
			ctx, cancel := s.chain.Following(r.Context())
			defer cancel()
			r = r.WithContext(ctx)
		}
		h.ServeHTTP(w, r)
	})
}

// Authenticated wraps a handler so that it is reached only with a key, and
// finds the caller in the context.
func (s *Server) Authenticated(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, err := s.chain.Authenticate(r)
		if err != nil {
			s.chain.Fail(w, r, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Listen opens the address. Afterwards, Addr and URL are known.
func (s *Server) Listen() error {
	l, err := net.Listen("tcp", s.config.Listen)
	if err != nil {
		return bothy.Errorf(bothy.CodeConflict, "the address %s cannot be listened on", s.config.Listen).
			WithHint("Stop what listens there, or choose another address with --listen or BOTHY_LISTEN.").Because(err)
	}
	s.listener = l
	if s.config.Connections > 0 {
		s.listener = middleware.Bound(l, s.config.Connections, s.config.ConnectionsPerAddress)
	}
	if s.config.TLS != nil {
		s.listener = tls.NewListener(s.listener, s.config.TLS)
	}
	s.chain.Hosts = middleware.NewHostCheck(s.config.Listen, s.config.AllowedHosts, l.Addr())
	return nil
}

// addr returns the listener's address, or nil before Listen.
func (s *Server) addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// URL is the address of the server for clients on this host.
func (s *Server) URL() string {
	host := s.listener.Addr().String()
	addr, ok := s.listener.Addr().(*net.TCPAddr)
	if ok && addr.IP.IsUnspecified() {
		host = fmt.Sprintf("127.0.0.1:%d", addr.Port)
	}
	if ok && s.config.TLS != nil && s.config.Name != "" {
		host = net.JoinHostPort(s.config.Name, strconv.Itoa(addr.Port))
	}
	return s.scheme() + "://" + host
}

func (s *Server) scheme() string {
	if s.config.TLS != nil {
		return "https"
	}
	return "http"
}

// Serve answers requests until Close. It returns nil after Close.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Drain ends streams that only follow, and waits for other requests in flight, at most for the
// grace. Meanwhile it keeps listening, so that services can refuse new requests with a reason,
// and /healthz informs load balancers.
func (s *Server) Drain() {
	s.chain.BeginClosing()
	s.http.SetKeepAlivesEnabled(false)
	s.deadline = time.Now().Add(s.config.Grace)
	s.chain.WaitUntilIdle(s.deadline)
}

// cutOffTime bounds how long requests that were cut off may take to clean up.
const cutOffTime = 5 * time.Second

// Close stops listening, ends streams that only follow, waits for the requests in flight for
// what remains of the grace after Drain, and then cuts them off.
func (s *Server) Close() error {
	s.chain.BeginClosing()
	if s.deadline.IsZero() {
		s.deadline = time.Now().Add(s.config.Grace)
	}
	ctx, cancel := context.WithDeadline(context.Background(), s.deadline)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err == nil {
		err = s.chain.WaitForSockets(ctx)
	}
	s.chain.StopWorking()
	if errors.Is(err, context.DeadlineExceeded) {
		// What is cut off is also ended inside its sandbox, while the sandbox can still be
		// reached.
		end, cancel := context.WithTimeout(context.Background(), cutOffTime)
		defer cancel()
		deadline, _ := end.Deadline()
		s.chain.WaitUntilIdle(deadline)
		// The ends of the answers are still being written.
		if err = s.http.Shutdown(end); err != nil {
			err = s.http.Close()
		}
	}
	if s.listener != nil {
		_ = s.listener.Close()
	}
	return err
}
