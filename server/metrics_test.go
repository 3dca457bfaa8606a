package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access"
	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/api/rest"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/store/sqlite"
	"github.com/bothy-dev/bothy/telemetry"
)

// metricsOnly is a server with metrics and keys, and nothing else.
func metricsOnly(t *testing.T, c config.Config) *Server {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "b.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s := &Server{config: c, log: slog.New(slog.DiscardHandler), tokens: access.New(db)}
	t.Cleanup(s.Close)
	s.metrics = telemetry.New("test", func(context.Context) (telemetry.Census, error) { return telemetry.Census{}, nil })
	s.api = api.New(api.Services{Services: rest.Services{Tokens: s.tokens}, Log: s.log}, api.Config{})
	if err := s.openMetrics(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Nothing about where a request comes from opens the metrics, since a proxy on this
// host passes on what anybody sends.
func TestMetricsNeedAKey(t *testing.T) {
	s := metricsOnly(t, config.Default())
	key := func(project string, scopes ...bothy.Scope) string {
		ctx := bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: bothy.DefaultProject, Scopes: bothy.AllScopes})
		k, err := s.tokens.CreateToken(ctx, bothy.TokenCreate{ProjectID: project, Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		return k.Key
	}
	for name, c := range map[string]struct {
		key  string
		want int
	}{
		"no key":                    {"", 401},
		"a key of another kind":     {key(bothy.DefaultProject, bothy.ScopeSandboxesRead), 403},
		"another project's metrics": {key("other", bothy.ScopeMetricsRead), 403},
		"another project's admin":   {key("other", bothy.ScopeAdmin), 403},
		"a key for metrics":         {key(bothy.DefaultProject, bothy.ScopeMetricsRead), 200},
		"the operator's":            {key(bothy.DefaultProject, bothy.ScopeAdmin), 200},
	} {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.RemoteAddr = "127.0.0.1:4000"
		if c.key != "" {
			r.Header.Set("Authorization", "Bearer "+c.key)
		}
		w := httptest.NewRecorder()
		s.api.ServeHTTP(w, r)
		if w.Code != c.want || (w.Code == 200) != strings.Contains(w.Body.String(), "bothy_build_info") {
			t.Errorf("%s: %d, want %d: %.80s", name, w.Code, c.want, w.Body)
		}
	}
}

func TestMetricsOnAListenerOfTheirOwn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.MetricsListen = l.Addr().String()
	l.Close()
	metricsOnly(t, c)
	client := &http.Client{Timeout: time.Minute}
	for path, want := range map[string]int{"/metrics": 200, "/v1/sandboxes": 404, "/healthz": 404} {
		res, err := client.Get("http://" + c.MetricsListen + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d: %.80s", path, res.StatusCode, want, text)
		}
	}
}
