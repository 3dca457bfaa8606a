package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// maxJSONBytes bounds the body of a JSON call.
	maxJSONBytes = 16 << 20
	// bodyTimeout bounds how long a JSON body may take to arrive.
	bodyTimeout = time.Minute
	// statusCallerLeft stands in the log where nobody was left to answer.
	statusCallerLeft = 499
)

// request is what the door knows of a request while it is worked on.
type request struct {
	id     string
	caller *bothy.Caller
	// call is what was asked for, if that was recognised; command, sandbox and
	// object are for the audit. recorded says that another door has seen to it.
	call                     *call
	command, sandbox, object string
	recorded                 bool
	// use is what was asked of a port in a sandbox, if that was it.
	use *portUse
	// outer is the call of another door, if it is one.
	outer *Outer
	// problem is what the caller was told, with its cause.
	problem *Problem

	hold
	load
}

type requestKey struct{}

func requestFrom(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// note keeps a problem for the log.
func note(ctx context.Context, p *Problem) {
	if r := requestFrom(ctx); r != nil {
		r.problem = p
	}
}

var validRequestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); validRequestID.MatchString(id) {
		return id
	}
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return "req_" + hex.EncodeToString(b[:])
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	s.busy.Add(1)
	defer s.busy.Add(-1)
	rec := &recorder{ResponseWriter: w}
	info := &request{id: requestID(r)}
	ctx := info.holdable(context.WithValue(r.Context(), requestKey{}, info), rec)
	defer info.release()
	r = s.withOrigin(ctx, r, info)
	rec.body = newIncoming(r)
	h := rec.Header()
	h.Set("X-Request-Id", info.id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	defer func() {
		abort := s.recovered(recover(), rec, r)
		s.answered(r, rec, info, began)
		if abort {
			panic(http.ErrAbortHandler)
		}
	}()
	s.route(rec, r)
	s.settle(rec)
}

// route finds out by the request's host and path what is asked for.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	t, named := s.linkTarget(r.Host)
	if !named {
		if err := s.hosts.check(r.Host); err != nil {
			s.fail(w, r, err)
			return
		}
	}
	if s.outerPorts != nil && s.outerPorts.ServePort(w, r, t.sandbox, t.port) {
		return
	}
	if named {
		webhook := takeLink(r)
		requestFrom(r.Context()).use = s.useOf(r, t)
		s.serveLink(w, r, t, webhook)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// withOrigin returns the request with its context, which knows where it came from.
func (s *Server) withOrigin(ctx context.Context, r *http.Request, info *request) *http.Request {
	remote, scheme := s.sender(r)
	r = r.WithContext(ctx)
	r.RemoteAddr = remote
	return r.WithContext(bothy.WithOrigin(ctx, bothy.Origin{RequestID: info.id, Remote: remoteOf(r), Scheme: scheme}))
}

// recovered answers for a handler that panicked. It reports whether the
// connection must be cut, because half an answer is out already.
func (s *Server) recovered(p any, rec *recorder, r *http.Request) (abort bool) {
	switch p {
	case nil:
		return false
	case http.ErrAbortHandler:
		return true
	}
	err := fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	if rec.status != 0 {
		note(r.Context(), problemOf(err))
		return true
	}
	s.fail(rec, r, err)
	return false
}

// answered tells the log, the audit and who else wants to know.
func (s *Server) answered(r *http.Request, rec *recorder, info *request, began time.Time) {
	took, status := time.Since(began), rec.statusOrOK()
	// A caller that went away is no failure of ours.
	left := info.problem != nil && errors.Is(info.problem, context.Canceled)
	if left {
		status = statusCallerLeft
	}
	s.logRequest(r, rec, info, status, left, took)
	s.audit(r, info, status, began, took)
	if s.config.Observe != nil {
		s.config.Observe(r.Method, r.Pattern, status, took)
	}
}

// logRequest writes the request's line. Queries and bodies stay out of it:
// they can hold secrets.
func (s *Server) logRequest(r *http.Request, rec *recorder, info *request, status int, left bool, took time.Duration) {
	level := slog.LevelInfo
	if r.URL.Path == "/healthz" {
		level = slog.LevelDebug
	}
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs,
		slog.String("request", info.id), slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.Int("status", status), slog.Int64("bytes", rec.bytes),
		slog.Float64("ms", float64(took.Microseconds())/1000), slog.String("remote", r.RemoteAddr))
	if info.caller != nil {
		attrs = append(attrs, slog.String("project", info.caller.ProjectID), slog.String("token", info.caller.TokenID))
		if info.caller.LinkID != "" {
			attrs = append(attrs, slog.String("link", info.caller.LinkID))
		}
	}
	if p := info.problem; p != nil && !left {
		attrs = append(attrs, slog.String("code", string(p.Code)))
		if p.Status >= 500 {
			level = slog.LevelError
			attrs = append(attrs, slog.String("error", p.Error()))
		}
	}
	s.log.LogAttrs(r.Context(), level, "request", attrs...)
}

// authenticate finds the caller and puts it into the request's context, which
// ends with the caller's key. The request comes back in any case.
func (s *Server) authenticate(r *http.Request) (*http.Request, error) {
	if s.comesWithLogin(r) {
		caller, _, err := s.sessionCaller(r)
		if err != nil {
			return r, err
		}
		return withCaller(r, caller), nil
	}
	header := r.Header.Get("Authorization")
	if len(r.Header.Values("Authorization")) > 1 {
		return r, bothy.Errorf(bothy.CodeUnauthenticated, "more than one Authorization header was given").
			WithHint("Give one: what is in front of this server may look at another than the server does.")
	}
	scheme, key, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || key == "" {
		_, err := bothy.Require(context.Background(), bothy.ScopeAdmin) // nobody asks: says what to do
		return r, err
	}
	caller, err := s.holdKey(r, strings.TrimSpace(key))
	if err != nil {
		return r, err
	}
	if info := requestFrom(r.Context()); info != nil {
		info.caller = caller
	}
	return r.WithContext(bothy.WithCaller(r.Context(), caller)), nil
}

// door is what stands before every call under /v1: the key, the scope, the
// bound on the body, and the memory of what was answered before.
func (s *Server) door(c call, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if info := requestFrom(r.Context()); info != nil {
			info.call = &c
		}
		r, err := s.authenticate(r)
		if err == nil {
			_, err = bothy.Require(r.Context(), c.Scope)
		}
		if err == nil && s.audited(c) {
			err = s.services.Recorder.Admit()
		}
		if err == nil {
			r, err = s.admit(r)
		}
		var body []byte
		if err == nil && c.takesJSON(r) {
			body, err = readJSON(w, r)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if key := r.Header.Get(idempotencyKey); key != "" && c.remembers(r) && s.services.Answers != nil {
			s.onlyOnce(c, key, body, w, r, h)
			return
		}
		h(w, r)
	}
}

// readJSON reads the whole body and leaves a copy of it in the request. The
// time limit is lifted after that: net/http would otherwise take it for a
// disconnected client in the middle of a long command.
func readJSON(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	if r.ContentLength > maxJSONBytes {
		return nil, tooLarge()
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := readAll(r.Context(), http.MaxBytesReader(w, r.Body, maxJSONBytes), r.ContentLength)
	_ = rc.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge()
	case bothy.ErrorCode(err) == bothy.CodeRateLimited:
		return nil, err
	case err != nil:
		return nil, bothy.Errorf(bothy.CodeInvalid, "the body did not arrive whole").
			WithHint("Send as many bytes as Content-Length says, within %d s.", bodyTimeout/time.Second).Because(err)
	}
	if info := requestFrom(r.Context()); info != nil {
		info.load.body = int64(len(body))
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

// NoRoute answers as where there is nothing.
func (s *Server) NoRoute() http.Handler { return http.HandlerFunc(s.noRoute) }

// noRoute answers where there is nothing.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, m := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		probe := *r
		probe.Method = m
		if _, pattern := s.mux.Handler(&probe); pattern != "/" {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) == 0 {
		s.fail(w, r, bothy.Errorf(bothy.CodeNotFound, "there is nothing at %s", r.URL.Path).
			WithHint("GET /openapi.json, or open /docs, to see the calls; they begin with /v1."))
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	s.fail(w, r, bothy.Errorf(bothy.CodeMethodNotAllowed, "%s is not possible on %s", r.Method, r.URL.Path).
		WithHint("Use %s.", strings.Join(allowed, " or ")))
}

// recorder knows what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
	// body is the request's, or nil; refused says that its rest is not wanted.
	body    *incoming
	refused bool
}

func (w *recorder) statusOrOK() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 || w.status == http.StatusContinue {
		w.status = status
		w.refusing(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController and the WebSocket library find what
// else the connection can do.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// hostCheck guards a listener on the loopback interface against web pages
// that have had their own name resolve to it (DNS rebinding). The zero value
// allows every name.
type hostCheck struct{ names map[string]bool }

func newHostCheck(c Config, addr net.Addr) hostCheck {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsLoopback() {
		return hostCheck{}
	}
	h := hostCheck{names: map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true, tcp.IP.String(): true}}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil {
		h.names[strings.ToLower(host)] = true
	}
	for _, name := range c.AllowedHosts {
		h.names[strings.ToLower(name)] = true
	}
	return h
}

func (h hostCheck) check(hostport string) error {
	if h.names == nil {
		return nil
	}
	host := hostport
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if h.names[host] {
		return nil
	}
	for rest := host; ; {
		_, parent, found := strings.Cut(rest, ".")
		if !found {
			break
		}
		if h.names["*."+parent] {
			return nil
		}
		rest = parent
	}
	return bothy.Errorf(bothy.CodeMisdirected, "this server is not %q", host).
		WithHint("Use 127.0.0.1 or localhost, or allow the name in the server's configuration (allowed_hosts).")
}
