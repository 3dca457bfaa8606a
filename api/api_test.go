package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/api/problem"
)

// fixture is a server with fake services, and its log.
type fixture struct {
	*testing.T
	*Server
	world   *apitest.World
	tokens  *apitest.Tokens
	answers *apitest.Answers
	audits  *apitest.Audit
	logged  *safeBuffer
	client  *http.Client
	key     string
	// services are the server's services.
	services Services
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func everything(world *apitest.World, tokens *apitest.Tokens, answers *apitest.Answers, log *slog.Logger) Services {
	services, audits := world.Services(tokens), &apitest.Audit{}
	services.Audit = audits
	return Services{
		Recorder: audits, Answers: answers, Log: log,
		Services: services,
	}
}

// setup is what a test can change before the server is created.
type setup struct {
	services Services
	config   Config
}

func start(t *testing.T, change ...func(*setup)) *fixture {
	t.Helper()
	f := &fixture{
		T: t, world: apitest.New(), tokens: apitest.NewTokens(), answers: &apitest.Answers{}, logged: &safeBuffer{},
		client: &http.Client{Transport: &http.Transport{}}, key: apitest.Writer,
	}
	log := slog.New(slog.NewJSONHandler(f.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := &setup{everything(f.world, f.tokens, f.answers, log), Config{Listen: "127.0.0.1:0", Grace: 5 * time.Second, Version: "test"}}
	f.audits = s.services.Recorder.(*apitest.Audit)
	for _, c := range change {
		c(s)
	}
	f.services, f.Server = s.services, New(s.services, s.config)
	if err := f.Listen(); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- f.Serve() }()
	t.Cleanup(func() {
		f.client.CloseIdleConnections()
		if err := f.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return f
}

// response is an answer with its body.
type response struct {
	*http.Response
	body string
}

type header map[string]string

func (f *fixture) request(method, path string, body any, headers ...header) *http.Request {
	f.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	case io.Reader:
		r = b
	default:
		text, err := json.Marshal(b)
		if err != nil {
			f.Fatal(err)
		}
		r = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(f.Context(), method, f.URL()+path, r)
	if err != nil {
		f.Fatal(err)
	}
	if r != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if f.key != "" {
		req.Header.Set("Authorization", "Bearer "+f.key)
	}
	for _, h := range headers {
		for k, v := range h {
			if k == "Host" {
				req.Host = v
			}
			req.Header.Set(k, v)
		}
	}
	return req
}

func (f *fixture) do(method, path string, body any, headers ...header) response {
	f.Helper()
	res, err := f.client.Do(f.request(method, path, body, headers...))
	if err != nil {
		f.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		f.Fatal(err)
	}
	return response{res, string(text)}
}

// open sends a request and returns the answer with its body unread.
func (f *fixture) open(ctx context.Context, method, path string, body any, headers ...header) *http.Response {
	f.Helper()
	res, err := f.client.Do(f.request(method, path, body, headers...).WithContext(ctx))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { res.Body.Close() })
	return res
}

// as returns the same server for another caller.
func (f *fixture) as(key string) *fixture {
	c := *f
	c.key = key
	return &c
}

func (f *fixture) ok(status int, res response) response {
	f.Helper()
	if res.StatusCode != status {
		f.Fatalf("%s %s answers %d, want %d: %s", res.Request.Method, res.Request.URL, res.StatusCode, status, res.body)
	}
	return res
}

// failed checks that an answer is a problem with exactly the documented fields.
func (f *fixture) failed(code bothy.Code, res response) problem.Problem {
	f.Helper()
	where := res.Request.Method + " " + res.Request.URL.String()
	if got := res.Header.Get("Content-Type"); got != "application/problem+json" {
		f.Fatalf("%s: content type %q: %d %s", where, got, res.StatusCode, res.body)
	}
	var keys map[string]json.RawMessage
	var p problem.Problem
	if err := json.Unmarshal([]byte(res.body), &keys); err != nil {
		f.Fatalf("%s: %v in %s", where, err, res.body)
	}
	if err := json.Unmarshal([]byte(res.body), &p); err != nil {
		f.Fatal(err)
	}
	for _, k := range []string{"status", "code", "detail", "hint"} {
		if _, ok := keys[k]; !ok {
			f.Errorf("%s: the problem has no %s: %s", where, k, res.body)
		}
	}
	if len(keys) != 4 {
		f.Errorf("%s: the problem has more than it should: %s", where, res.body)
	}
	if p.Code != code || p.Status != res.StatusCode || p.Status != problem.Statuses[code] {
		f.Fatalf("%s: status %d, want the problem %s: %s", where, res.StatusCode, code, res.body)
	}
	if p.Detail == "" {
		f.Errorf("%s: no detail: %s", where, res.body)
	}
	if res.Header.Get("X-Request-Id") == "" {
		f.Errorf("%s: no request id", where)
	}
	return p
}

func decode[T any](f *fixture, res response) T {
	f.Helper()
	var v T
	d := json.NewDecoder(strings.NewReader(res.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		f.Fatalf("%v in %s", err, res.body)
	}
	return v
}

// create makes a sandbox and returns its path.
func (f *fixture) create() string {
	f.Helper()
	return "/v1/sandboxes/" + decode[bothy.Sandbox](f, f.ok(201, f.do("POST", "/v1/sandboxes", nil))).ID
}
