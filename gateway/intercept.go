package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// idleHTTP is how long an intercepted connection may be idle.
	idleHTTP = 5 * time.Minute
	// headTime bounds the head of a request on one.
	headTime = time.Minute
)

// intercept impersonates the host of a TLS connection: it terminates TLS with a certificate of
// the sandbox's own authority, inserts secrets into the requests, and speaks TLS to the real
// host, which it verifies.
func (s *session) intercept(name string) error {
	defer s.g.intercepted.put(1)
	room := window(s.g.intercepted.held.Load())
	ca := s.g.secrets.Load().ca
	conf := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return ca.certificate(name)
		},
	}
	transport := s.transport(name, room)
	defer transport.CloseIdleConnections()
	quiet := log.New(io.Discard, "", 0)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { s.rewrite(name, r) },
		Transport: wholeAnswers{transport},
		ModifyResponse: func(res *http.Response) error {
			if countFields(res.Header) > maxFields {
				return fmt.Errorf("the answer has more than %d header fields", maxFields)
			}
			return scrubAnswer(res)
		},
		FlushInterval: -1,
		BufferPool:    proxyBuffers{},
		ErrorLog:      quiet,
		ErrorHandler:  s.proxyError,
	}
	server := &http.Server{
		Handler: s.countRequests(s.checkHost(name, proxy)), TLSConfig: conf, ErrorLog: quiet,
		IdleTimeout: idleHTTP, ReadHeaderTimeout: headTime, MaxHeaderBytes: interceptedHead,
		BaseContext: func(net.Listener) context.Context { return s.f.ctx },
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame,
			MaxReceiveBufferPerConnection: min(room, bufferDefault), MaxReceiveBufferPerStream: min(room, bufferDefault),
		},
	}
	conn := &countedConn{client: s.guest, f: s.f, closed: make(chan struct{})}
	_ = server.Serve(&singleListener{conn: tls.Server(conn, conf), closed: conn.closed})
	return server.Shutdown(s.f.ctx)
}

// runIntercepted carries an intercepted connection to its end.
func (s *session) runIntercepted(forward func() error) error {
	err := forward()
	_ = s.up.Close()
	return err
}

// transport connects to the real host. Its first connection is the one made when the guest's was
// accepted. It holds up to room bytes of answers that the guest does not read.
func (s *session) transport(name string, room int) *http.Transport {
	first := make(chan net.Conn, 1)
	first <- s.up
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case c := <-first:
				return c, nil
			default:
			}
			return s.dialMore(ctx, name)
		},
		TLSClientConfig:    &tls.Config{ServerName: name, RootCAs: s.g.rootCAs, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:  true,
		DisableCompression: true,
		IdleConnTimeout:    idleHTTP,

		MaxResponseHeaderBytes: interceptedHead,
		HTTP2: &http.HTTP2Config{
			MaxReadFrameSize: maxFrame, MaxReceiveBufferPerConnection: room, MaxReceiveBufferPerStream: room,
		},
	}
}

// errNoBudget is returned if the budget has no connection left.
var errNoBudget = errors.New("the server has too many open connections")

// dialMore opens further connections to the host, for concurrent requests.
func (s *session) dialMore(ctx context.Context, name string) (net.Conn, error) {
	s.g.mu.Lock()
	giveBack := s.g.spend()
	s.g.mu.Unlock()
	if giveBack == nil {
		return nil, errNoBudget
	}
	c, err := s.g.dialName(ctx, name, s.f.to.dst.Port())
	if err != nil {
		giveBack()
		return nil, err
	}
	s.f.onRevoke(func() { resetConn(c) })
	return &budgetedConn{c, giveBack}, nil
}

// budgetedConn returns its part of the budget when it is closed.
type budgetedConn struct {
	net.Conn
	giveBack func()
}

func (c *budgetedConn) Close() error {
	defer c.giveBack()
	return c.Conn.Close()
}

// countRequests bounds the requests in flight of the whole sandbox. One too many is cut off: a
// guest that reads no answers could make the gateway hold any number of refusals.
func (s *session) countRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.g.requests.take(1) {
			s.g.lines.record(s.f.decision("http", refuse("the sandbox has too many requests to hosts with secrets at once (%d)", maxRequests)))
			panic(http.ErrAbortHandler)
		}
		defer s.g.requests.put(1)
		next.ServeHTTP(w, r)
	})
}

func countFields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// checkHost accepts only requests for name. The gateway can read this connection, so a request
// for another host is refused.
func (s *session) checkHost(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, ok := hostOf(r.Host)
		switch {
		case !ok || host != name:
			s.refuseRequest(w, http.StatusMisdirectedRequest, fmt.Sprintf("the HTTP request is for %s, and the connection is to %s", clip(r.Host), name))
		case countFields(r.Header) > maxFields:
			s.refuseRequest(w, http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the HTTP request has more than %d header fields", maxFields))
		case r.Method == http.MethodTrace || r.Method == http.MethodConnect:
			// TRACE would send the secret back.
			s.refuseRequest(w, http.StatusMethodNotAllowed, r.Method+" is not possible to a host that receives a secret")
		default:
			// A host may answer before it has read the request's body. HTTP/1 would then drop
			// the rest of the body, and the host would abort its answer to a request cut short.
			_ = http.NewResponseController(w).EnableFullDuplex()
			next.ServeHTTP(finalOnly{w}, r)
		}
	})
}

func (s *session) refuseRequest(w http.ResponseWriter, status int, reason string) {
	s.g.lines.record(s.f.decision("http", refuse("%s", reason)))
	http.Error(w, refusalText(reason), status)
}

// rewrite turns the sandbox's request into the one to the real host.
func (s *session) rewrite(name string, r *httputil.ProxyRequest) {
	r.Out.URL.Scheme = "https"
	r.Out.URL.Host = net.JoinHostPort(name, fmt.Sprint(s.f.to.dst.Port()))
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	for _, key := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := r.In.Header[key]; ok {
			r.Out.Header[key] = v
		}
	}
	placed := s.g.secrets.Load().putInPlace(name, r.Out)
	for _, d := range placed.decisions() {
		line := s.f.decision("http", allow("secret:"+d.secret))
		line.Reason = d.left
		s.g.lines.record(line)
	}
	r.Out = placed.readable(r.Out)
}

// proxyError answers for a host that could not be reached or verified. The sandbox sees this
// text.
func (s *session) proxyError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return
	}
	reason := "could not connect: " + plainError(err)
	s.g.lines.record(bothy.NetworkDecision{
		Protocol: "http", Name: s.f.target().name, Port: s.f.to.dst.Port(), Allowed: true, Rule: s.verdict.rule, Reason: reason,
	})
	http.Error(w, "The gateway of this sandbox "+reason+".", http.StatusBadGateway)
}

// countedConn is the guest's end of an intercepted connection.
type countedConn struct {
	*client
	f      *flow
	once   sync.Once
	closed chan struct{}
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.client.Read(p)
	c.f.out.add(n)
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.client.Write(p)
	c.f.in.add(n)
	return n, err
}

// Close ends the connection. The session frees the endpoint itself when it is no longer used.
func (c *countedConn) Close() error {
	c.once.Do(func() {
		_ = c.client.CloseWrite()
		close(c.closed)
	})
	return nil
}

// singleListener is a listener for one connection. It ends when that does.
type singleListener struct {
	conn   net.Conn
	closed <-chan struct{}
}

func (l *singleListener) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *singleListener) Close() error   { return nil }
func (l *singleListener) Addr() net.Addr { return guestAddr(0) }

// proxyBuffers lets the proxy use the buffers of plain connections.
type proxyBuffers struct{}

func (proxyBuffers) Get() []byte { return *narrow.get() }

func (proxyBuffers) Put(b []byte) {
	narrow.put(&b)
}
