// Package api is the REST door: it decodes, authenticates, calls the services
// and encodes. It knows HTTP and OpenAPI and nothing else; server gives it
// the services. A new group of calls is one file with a register function.
package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/inflight"
	"github.com/bothy-dev/bothy/session"
	"github.com/bothy-dev/bothy/store"
)

// DefaultListen is where the server listens unless told otherwise.
const DefaultListen = "127.0.0.1:7700"

// Services is what the door leads to. A nil service has no routes.
type Services struct {
	// Tokens authenticates every request and is the one that must be there.
	Tokens    bothy.TokenService
	Sandboxes bothy.SandboxService
	Exec      bothy.ExecService
	Code      bothy.CodeService
	Files     bothy.FileService
	Templates bothy.TemplateService
	Snapshots bothy.SnapshotService
	Events    bothy.EventService
	Network   bothy.NetworkService
	Metrics   bothy.MetricsService
	Ports     bothy.PortService
	Links     bothy.LinkService
	Mover     bothy.SnapshotMover
	Logs      bothy.LogService
	Limits    bothy.LimitsService
	Projects  bothy.ProjectService
	Usage     bothy.UsageService
	Audit     bothy.AuditService

	// Sessions are the logins of browsers. Optional.
	Sessions *session.Store
	// Recorder keeps the record of who did what. Optional.
	Recorder bothy.AuditRecorder
	// Answers remembers answers for Idempotency-Key. Without it the header is
	// ignored.
	Answers AnswerStore
	// Inflight bounds what requests hold of the server. Optional.
	Inflight *inflight.Limits
	// Log gets one line per request; slog.Default() when nil.
	Log *slog.Logger
}

// AnswerStore is what idempotency needs of store.Store.
type AnswerStore interface {
	ReserveAnswer(ctx context.Context, projectID, key, fingerprint string) (*store.Answer, error)
	StoreAnswer(ctx context.Context, projectID, key string, a store.Answer) error
	ForgetAnswer(ctx context.Context, projectID, key string) error
}

// Config is where and how the server listens.
type Config struct {
	// Listen is a TCP address; DefaultListen when empty. Port 0 takes any.
	Listen string
	// AllowedHosts are further names under which a loopback listener may be
	// addressed, such as that of a proxy in front of it. "*.example.com"
	// allows the names below example.com.
	AllowedHosts []string
	// TrustedProxies are those whose X-Forwarded-For and X-Forwarded-Proto are
	// believed; from elsewhere these headers are ignored.
	TrustedProxies []netip.Prefix
	// Grace is how long Drain and Close wait for requests under way, 10 s when
	// zero and not at all when negative.
	Grace time.Duration
	// TLS is what the listener proves itself with; plain HTTP when nil. Name is
	// the one that is in its certificate; the address when empty.
	TLS  *tls.Config
	Name string
	// LinkKey signs links to ports; without it there are none. LinkDomain is
	// the domain below which ports have names, "localhost" when empty.
	LinkKey    []byte
	LinkDomain string
	// Connections bounds how many there are at once, and ConnectionsPerAddress those
	// from one address that is not of this host. 0 is no bound.
	Connections, ConnectionsPerAddress int
	// Observe is told of every answered request: its route, which is empty for
	// none, and its status. Optional.
	Observe func(method, route string, status int, took time.Duration)
	// AuditReads records also the calls that change nothing.
	AuditReads bool
	// Problems says what is wrong with the server although it answers, for
	// /healthz. Optional.
	Problems func() []string
	// Version is the server's version, for the OpenAPI document.
	Version string
}

// Server is the door. Its life is New, Listen, Serve, Close; as an
// http.Handler it can be used without Listen.
type Server struct {
	services Services
	config   Config
	log      *slog.Logger
	mux      *http.ServeMux
	huma     huma.API
	calls    []call
	proxied  []call // those that huma does not know
	document document
	hosts    hostCheck
	beats    heartbeat
	proxy    *httputil.ReverseProxy
	// outerPorts is another door's way to ports. Optional.
	outerPorts OuterPorts

	http     *http.Server
	listener net.Listener
	// closing ends when Close begins: streams that only follow end with it.
	closing      context.Context
	beginClosing context.CancelFunc
	// working ends when Close has waited long enough.
	working     context.Context
	stopWorking context.CancelFunc
	// sockets counts upgraded connections, which net/http forgets about.
	sockets sync.WaitGroup
	// archiveSilence is how long the peer of an archive may do nothing; 0 is paceSilence.
	archiveSilence time.Duration
	// settling bounds the refused bodies that are read to their end at once.
	settling chan struct{}
	// detached are terminals that may be joined again, for rejoinTime.
	detached   detached
	rejoinTime time.Duration
	// busy counts the requests under way, for Drain.
	busy atomic.Int64
	// deadline is when Drain or Close wait no longer.
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
	s := &Server{
		services: services, config: config, log: services.Log, mux: http.NewServeMux(),
		settling:   make(chan struct{}, maxRefused),
		rejoinTime: rejoinTime,
		beats:      heartbeat{first: 200 * time.Millisecond, every: 15 * time.Second},
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.closing, s.beginClosing = context.WithCancel(context.Background())
	s.working, s.stopWorking = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return s.working },
		ConnState:         connState,
		ConnContext:       withConn,
	}
	s.huma = huma.NewAPI(s.humaConfig(), adapter{s})
	s.register()
	return s
}

func (s *Server) register() {
	s.registerSandboxes()
	s.registerExec()
	s.registerProcesses()
	s.registerTerminal()
	s.registerCode()
	s.registerFiles()
	s.registerSnapshots()
	s.registerTemplates()
	s.registerEvents()
	s.registerNetwork()
	s.registerMetrics()
	s.registerLogs()
	s.registerMover()
	s.registerPorts()
	s.registerTokens()
	s.registerProjects()
	s.registerUsage()
	s.registerAudit()
	s.registerHealth()
	s.registerSession()
	s.finishDocument()
	s.mux.HandleFunc("/", s.noRoute)
}

// Handle mounts a handler of another door or tool, such as MCP. It gets the
// request's id, the log, the check of the Host header and the recovery from
// panics; it authenticates by itself or is wrapped by Authenticated.
// What it answers a GET with for ever ends when the server is about to close, and
// every request ends with the key that it brings.
func (s *Server) Handle(pattern string, h http.Handler) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			// Whether the key is good is for the handler to say.
			known, err := s.authenticate(r)
			if err == nil {
				if r, err = s.admitOther(known); err != nil {
					s.fail(w, r, err)
					return
				}
			}
		}
		if r.Method == http.MethodGet {
			ctx, cancel := s.following(r.Context())
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
		r, err := s.authenticate(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Listen opens the address. After it, Addr and URL are known.
func (s *Server) Listen() error {
	l, err := net.Listen("tcp", s.config.Listen)
	if err != nil {
		return bothy.Errorf(bothy.CodeConflict, "the address %s cannot be listened on", s.config.Listen).
			WithHint("Stop what listens there, or choose another address with --listen or BOTHY_LISTEN.").Because(err)
	}
	s.listener = l
	if s.config.Connections > 0 {
		s.listener = newBounded(l, s.config.Connections, s.config.ConnectionsPerAddress)
	}
	if s.config.TLS != nil {
		s.listener = tls.NewListener(s.listener, s.config.TLS)
	}
	s.hosts = newHostCheck(s.config, l.Addr())
	return nil
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// URL is how the server is reached from this host.
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

// Drain ends what only follows, and waits until no other request is under way,
// for as long as the grace. Meanwhile it goes on listening, so that who asks is
// told what is going on: that is for the services to say. /healthz says it to
// whoever spreads requests over servers.
func (s *Server) Drain() {
	s.beginClosing()
	s.http.SetKeepAlivesEnabled(false)
	s.deadline = time.Now().Add(s.config.Grace)
	s.waitUntilIdle(s.deadline)
}

// cutOffTime bounds how long requests that were cut off may take to clean up.
const cutOffTime = 5 * time.Second

// waitUntilIdle returns when no request is under way, or time is up.
func (s *Server) waitUntilIdle(deadline time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for s.busy.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Close stops listening, ends what only follows, waits for the requests under
// way for as long as the grace, of which Drain may have used a part, and then
// cuts them off.
func (s *Server) Close() error {
	s.beginClosing()
	if s.deadline.IsZero() {
		s.deadline = time.Now().Add(s.config.Grace)
	}
	ctx, cancel := context.WithDeadline(context.Background(), s.deadline)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err == nil {
		err = s.waitForSockets(ctx)
	}
	s.stopWorking()
	if errors.Is(err, context.DeadlineExceeded) {
		// What is cut off is also ended inside its sandbox, while there still is
		// a way there.
		s.waitUntilIdle(time.Now().Add(cutOffTime))
		err = s.http.Close()
	}
	if s.listener != nil {
		_ = s.listener.Close()
	}
	return err
}

func (s *Server) waitForSockets(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		s.sockets.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
