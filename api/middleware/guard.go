package middleware

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access/session"
	"github.com/bothy-dev/bothy/api/problem"
)

const (
	// MaxJSONBytes bounds the body of a JSON call.
	MaxJSONBytes = 16 << 20
	// bodyTimeout bounds how long a JSON body may take to arrive.
	bodyTimeout = time.Minute
	// maxLoginBytes and loginTimeout are the same for a login.
	maxLoginBytes = 4 << 10
	loginTimeout  = 10 * time.Second
	// statusCallerLeft is the status in the log for a request whose caller left.
	statusCallerLeft = 499
)

// ServeHTTP implements http.Handler.
func (s *Chain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	s.busy.Add(1)
	defer s.busy.Add(-1)
	rec := &recorder{ResponseWriter: w}
	info := &Request{id: requestID(r)}
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
	s.Route(rec, r)
	s.settle(rec)
}

// withOrigin returns the request with its origin in the context.
func (s *Chain) withOrigin(ctx context.Context, r *http.Request, info *Request) *http.Request {
	remote, scheme := s.sender(r)
	r = r.WithContext(ctx)
	r.RemoteAddr = remote
	return r.WithContext(bothy.WithOrigin(ctx, bothy.Origin{RequestID: info.id, Remote: RemoteOf(r), Scheme: scheme, Host: r.Host}))
}

// recovered answers for a handler that panicked. It reports whether the connection must be cut,
// because a part of the answer has been sent.
func (s *Chain) recovered(p any, rec *recorder, r *http.Request) (abort bool) {
	switch p {
	case nil:
		return false
	case http.ErrAbortHandler:
		return true
	}
	err := fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	if rec.status != 0 {
		Note(r.Context(), problem.Of(err))
		return true
	}
	s.Fail(rec, r, err)
	return false
}

// answered writes the log and the audit, and calls Observe.
func (s *Chain) answered(r *http.Request, rec *recorder, info *Request, began time.Time) {
	took, status := time.Since(began), rec.statusOrOK()
	// A caller that left is not a failure of ours, but what the server itself cancelled is.
	left := info.problem != nil && errors.Is(info.problem, context.Canceled) && r.Context().Err() != nil
	if left {
		status = statusCallerLeft
	}
	s.logRequest(r, rec, info, status, left, took)
	s.audit(r, info, status, began, took)
	if s.Observe != nil {
		s.Observe(r.Method, r.Pattern, status, took)
	}
}

// logRequest writes the request's line. It omits queries and bodies: they can contain secrets.
func (s *Chain) logRequest(r *http.Request, rec *recorder, info *Request, status int, left bool, took time.Duration) {
	level := slog.LevelInfo
	if r.URL.Path == "/healthz" {
		level = slog.LevelDebug
	}
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs,
		slog.String("request", info.id), slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.Int("status", status), slog.Int64("bytes", rec.bytes),
		slog.Float64("ms", float64(took.Microseconds())/1000), slog.String("remote", r.RemoteAddr))
	if info.Caller != nil {
		attrs = append(attrs, slog.String("project", info.Caller.ProjectID), slog.String("token", info.Caller.TokenID))
		if info.Caller.LinkID != "" {
			attrs = append(attrs, slog.String("link", info.Caller.LinkID))
		}
	}
	if p := info.problem; p != nil && !left {
		attrs = append(attrs, slog.String("code", string(p.Code)))
		if p.Status >= 500 {
			level = slog.LevelError
			attrs = append(attrs, slog.String("error", p.Error()))
		}
	}
	s.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// Authenticate finds the caller and puts it into the request's context, which ends with the
// caller's key. It always returns a request.
func (s *Chain) Authenticate(r *http.Request) (*http.Request, error) {
	if p := PeerFrom(r.Context()); p != nil && p.TokenID != "" {
		caller, err := s.HoldKeyID(r, session.Session{ProjectID: p.Project, TokenID: p.TokenID})
		if err != nil {
			return r, err
		}
		return WithCaller(r, caller), nil
	}
	if s.comesWithLogin(r) {
		caller, _, err := s.SessionCaller(r)
		if err != nil {
			return r, err
		}
		return WithCaller(r, caller), nil
	}
	header := r.Header.Get("Authorization")
	if len(r.Header.Values("Authorization")) > 1 {
		return r, bothy.Errorf(bothy.CodeUnauthenticated, "more than one Authorization header was given").
			WithHint("Give one: what is in front of this server may look at another than the server does.")
	}
	scheme, key, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || key == "" {
		_, err := bothy.Require(context.Background(), bothy.ScopeAdmin) // its error says what to do
		return r, err
	}
	caller, err := s.HoldKey(r, strings.TrimSpace(key))
	if err != nil {
		return r, err
	}
	if info := RequestFrom(r.Context()); info != nil {
		info.Caller = caller
	}
	return r.WithContext(bothy.WithCaller(r.Context(), caller)), nil
}

// Guard is the middleware of every call under /v1: the key, the scope, the limit on the body,
// and idempotency.
func (s *Chain) Guard(c Operation, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if info := RequestFrom(r.Context()); info != nil {
			info.Operation = &c
		}
		r, err := s.Authenticate(r)
		if err == nil {
			_, err = bothy.Require(r.Context(), c.Scope)
		}
		if err == nil && s.Audited(c) && !c.Revokes {
			err = s.Recorder.Admit()
		}
		if err == nil {
			r, err = s.Admit(r)
		}
		var body []byte
		if err == nil && c.takesJSON(r) {
			body, err = ReadJSON(w, r)
		}
		if err != nil {
			s.Fail(w, r, err)
			return
		}
		if key := r.Header.Get(IdempotencyKey); key != "" && c.remembers(r) && s.Answers != nil {
			s.onlyOnce(c, key, body, w, r, h)
			return
		}
		h(w, r)
	}
}

// ReadJSON reads the whole body and leaves a copy of it in the request. Afterwards it removes
// the time limit: net/http would otherwise take it for a disconnected client in the middle of a
// long command.
func ReadJSON(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return readJSON(w, r, MaxJSONBytes, bodyTimeout, TooLarge)
}

// ReadLogin is ReadJSON for a caller who is not known yet, and so has no memory to count it in.
func ReadLogin(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return readJSON(w, r, maxLoginBytes, loginTimeout, func() error {
		return bothy.Errorf(bothy.CodeTooLarge, "a login has at most %d bytes", maxLoginBytes).WithHint(`Send {"key":"…"} or {"code":"…"}.`)
	})
}

func readJSON(w http.ResponseWriter, r *http.Request, most int64, timeout time.Duration, tooLarge func() error) ([]byte, error) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	if r.ContentLength > most {
		return nil, tooLarge()
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(timeout))
	body, err := readAll(r.Context(), http.MaxBytesReader(w, r.Body, most), r.ContentLength)
	_ = rc.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge()
	case bothy.ErrorCode(err) == bothy.CodeRateLimited:
		return nil, err
	case err != nil:
		return nil, bothy.Errorf(bothy.CodeInvalid, "the body arrived incomplete").
			WithHint("Send as many bytes as Content-Length says, within %d s.", timeout/time.Second).Because(err)
	}
	if info := RequestFrom(r.Context()); info != nil {
		info.load.body = int64(len(body))
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

// Fail answers with a problem, for handlers that are not huma's.
func (s *Chain) Fail(w http.ResponseWriter, r *http.Request, err error) {
	if cause := EndedBy(r.Context()); cause != nil {
		err = cause
	}
	p := problem.Of(err)
	Note(r.Context(), p)
	if info := RequestFrom(r.Context()); info != nil && info.Outer != nil {
		failOuter(w, r, info.Outer, p)
		return
	}
	for k, v := range p.GetHeaders() {
		w.Header()[k] = v
	}
	var b bytes.Buffer
	_ = problem.Encode(&b, p)
	w.Header().Set("Content-Type", problem.ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(b.Len())) // complete before a refused body is
	w.WriteHeader(p.Status)
	_, _ = w.Write(b.Bytes())
}

func TooLarge() error {
	return bothy.Errorf(bothy.CodeTooLarge, "the body is larger than %d MiB", MaxJSONBytes>>20).
		WithHint("Send large files with PUT /v1/sandboxes/{id}/files, which has no bound.")
}
