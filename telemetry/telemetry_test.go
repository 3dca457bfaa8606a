package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/telemetry"
)

func census(context.Context) (telemetry.Census, error) {
	return telemetry.Census{
		Sandboxes: map[bothy.State]int{bothy.StateRunning: 3, bothy.StatePaused: 2}, Pooled: 1, Snapshots: 4, SnapshotBytes: 1 << 20, FreeMemoryBytes: 1 << 30,
		Inflight: []telemetry.Inflight{{Resource: "streams", Held: 7, Refused: 2}},
	}, nil
}

func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func used(m *telemetry.Metrics) {
	m.Request("POST", "POST /v1/sandboxes", 201, 7*time.Millisecond)
	m.Request("BREW", "", 404, time.Millisecond)
	m.Event(bothy.Event{Type: bothy.EventSandboxCreated})
	m.Event(bothy.Event{Type: bothy.EventSandboxEnded, Data: map[string]string{"reason": "timeout"}})
}

func TestMetrics(t *testing.T) {
	m := telemetry.New("v1", census)
	used(m)
	got := scrape(t, m)
	for _, want := range []string{
		`bothy_build_info{version="v1"} 1`,
		`bothy_http_requests_total{method="POST",route="POST /v1/sandboxes",status="201"} 1`,
		`bothy_http_requests_total{method="other",route="none",status="404"} 1`,
		`bothy_http_request_duration_seconds_bucket{method="POST",route="POST /v1/sandboxes",le="0.01"} 1`,
		`bothy_events_total{type="sandbox.created"} 1`,
		`bothy_sandboxes_ended_total{reason="timeout"} 1`,
		`bothy_sandboxes{state="running"} 3`,
		`bothy_sandboxes{state="starting"} 0`,
		`bothy_pool_ready 1`,
		`bothy_snapshots 4`,
		`bothy_snapshot_bytes 1.048576e+06`,
		`bothy_host_memory_available_bytes 1.073741824e+09`,
		"go_goroutines ",
		"process_open_fds ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing", want)
		}
	}
	problems, err := promlint.New(strings.NewReader(got)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestAFailedCensusKeepsOtherMetrics(t *testing.T) {
	m := telemetry.New("v1", func(context.Context) (telemetry.Census, error) { return telemetry.Census{}, errors.New("no store") })
	used(m)
	if got := scrape(t, m); !strings.Contains(got, "bothy_events_total") || strings.Contains(got, "bothy_sandboxes{") {
		t.Errorf("got %s", got)
	}
}

// The dashboard uses only metrics that exist.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile("../docs/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	m := telemetry.New("v1", census)
	used(m)
	m.Cluster(func() telemetry.ClusterHost { return telemetry.ClusterHost{} })
	m.Losses(func() telemetry.Losses { return telemetry.Losses{} })
	there := scrape(t, m)
	name := regexp.MustCompile(`\b(bothy|go|process)_[a-z_]+`)
	asked := 0
	for _, p := range board.Panels {
		for _, x := range p.Targets {
			for _, n := range name.FindAllString(x.Expr, -1) {
				asked++
				if !strings.Contains(there, n) {
					t.Errorf("the panel %q asks for %s, which there is not", p.Title, n)
				}
			}
		}
	}
	for _, lost := range []string{"paused", "ended", "resumed", "left_paused"} {
		if !bytes.Contains(b, []byte("bothy_lost_sandboxes_"+lost+"_total")) {
			t.Errorf("no panel shows sandboxes of lost hosts that are %s", lost)
		}
	}
	if len(board.Panels) < 6 || asked < 8 {
		t.Errorf("the dashboard has %d panels that ask for %d metrics", len(board.Panels), asked)
	}
}
