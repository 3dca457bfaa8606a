// Package telemetry exports the server's metrics for Prometheus.
package telemetry

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bothy-dev/bothy"
)

// Census is what the server has at a moment.
type Census struct {
	// Sandboxes counts the sandboxes that have not ended, by state.
	Sandboxes map[bothy.State]int
	// Pooled are the ready sandboxes that no request has taken yet, and
	// PooledBytes the memory that they use. Spares are half-started ones.
	Pooled      int
	PooledBytes int64
	Spares      int
	// Golden counts the golden snapshots, and GoldenBytes is their size.
	Golden      int
	GoldenBytes int64
	// Snapshots and SnapshotBytes count the snapshots of all projects.
	Snapshots     int
	SnapshotBytes int64
	// UsageUnwritten is how long ago all usage was last written.
	UsageUnwritten time.Duration
	// FreeMemoryBytes is the host's free memory.
	FreeMemoryBytes int64
	// Inflight is what requests in flight use.
	Inflight []Inflight
}

// Inflight is how much of a limited resource requests use, and how many were refused
// because of it.
type Inflight struct {
	Resource      string
	Held, Refused int64
}

// Metrics are the server's counters and gauges.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	events   *prometheus.CounterVec
	ended    *prometheus.CounterVec
	moves    *prometheus.CounterVec
	still    prometheus.Histogram
}

// buckets range from claiming a ready sandbox to a command that takes minutes, in
// seconds.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// New returns the metrics. census is called at each scrape; if it fails, its values
// are missing from that scrape.
func New(version string, census func(context.Context) (Census, error)) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bothy_http_requests_total", Help: "Requests that were answered, by route and status.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "bothy_http_request_duration_seconds", Help: "How long requests took until the end of their answer, by route.", Buckets: buckets,
		}, []string{"method", "route"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bothy_events_total", Help: "What happened to sandboxes, snapshots and templates, by type of event.",
		}, []string{"type"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bothy_sandboxes_ended_total", Help: "Sandboxes that have ended, by reason.",
		}, []string{"reason"}),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bothy_moves_total", Help: "Attempts to move a sandbox to another host, by outcome: moved, refused or failed.",
		}, []string{"outcome"}),
		still: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "bothy_move_still_seconds", Help: "How long running sandboxes were frozen while they were moved to another host.", Buckets: buckets,
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "bothy_build_info", Help: "The version of the server; always 1.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(m.requests, m.seconds, m.events, m.ended, m.moves, m.still, build, &censusCollector{census},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, EnableOpenMetrics: true})
}

// Request counts an answered request. route is the pattern that it matched, or
// empty.
func (m *Metrics) Request(method, route string, status int, took time.Duration) {
	if route == "" {
		route = "none"
	}
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
	default: // callers must not choose labels
		method = "other"
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(method, route).Observe(took.Seconds())
}

// Event counts an event.
func (m *Metrics) Event(e bothy.Event) {
	m.events.WithLabelValues(e.Type).Inc()
	if e.Type == bothy.EventSandboxEnded {
		m.ended.WithLabelValues(e.Data["reason"]).Inc()
	}
}

// Move counts an attempt to move a sandbox to another host, for which it was frozen where it
// ran.
func (m *Metrics) Move(outcome string, still time.Duration) {
	m.moves.WithLabelValues(outcome).Inc()
	if still > 0 {
		m.still.Observe(still.Seconds())
	}
}

// censusCollector exports a census as gauges.
type censusCollector struct {
	census func(context.Context) (Census, error)
}

var (
	sandboxesDesc = prometheus.NewDesc("bothy_sandboxes", "Sandboxes that have not ended, by state.", []string{"state"}, nil)
	pooledDesc    = prometheus.NewDesc("bothy_pool_ready", "Ready sandboxes that no request has taken yet.", nil, nil)
	pooledMemDesc = prometheus.NewDesc("bothy_pool_memory_bytes", "Memory of the ready sandboxes, in bytes.", nil, nil)
	sparesDesc    = prometheus.NewDesc("bothy_pool_spares", "Half-started sandboxes.", nil, nil)
	goldenDesc    = prometheus.NewDesc("bothy_golden_snapshots", "Golden snapshots, from which sandboxes are made.", nil, nil)
	goldenMemDesc = prometheus.NewDesc("bothy_golden_snapshot_bytes", "What golden snapshots take up on disk, in bytes.", nil, nil)
	snapshotsDesc = prometheus.NewDesc("bothy_snapshots", "Snapshots that are kept.", nil, nil)
	storageDesc   = prometheus.NewDesc("bothy_snapshot_bytes", "What snapshots take up on disk, in bytes.", nil, nil)
	usageDesc     = prometheus.NewDesc("bothy_usage_unwritten_seconds", "How long ago all that was used had been written; it grows while the meters cannot be.", nil, nil)
	heldDesc      = prometheus.NewDesc("bothy_inflight", "What requests hold: how many requests and streams there are, and bytes of memory.", []string{"resource"}, nil)
	refusedDesc   = prometheus.NewDesc("bothy_inflight_refused_total", "Requests that were refused for exceeding a bound, by what they wanted.", []string{"resource"}, nil)
	memoryDesc    = prometheus.NewDesc("bothy_host_memory_available_bytes", "Memory that the host has left, in bytes.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *censusCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		sandboxesDesc, pooledDesc, pooledMemDesc, sparesDesc, goldenDesc, goldenMemDesc, snapshotsDesc, storageDesc, usageDesc, memoryDesc, heldDesc, refusedDesc,
	} {
		ch <- d
	}
}

// censusTimeout limits a scrape.
const censusTimeout = 5 * time.Second

// Collect implements prometheus.Collector.
func (c *censusCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), censusTimeout)
	defer cancel()
	now, err := c.census(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(sandboxesDesc, err)
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, s := range bothy.LiveStates { // so that states without sandboxes are exported as 0
		gauge(sandboxesDesc, float64(now.Sandboxes[s]), string(s))
	}
	gauge(pooledDesc, float64(now.Pooled))
	gauge(pooledMemDesc, float64(now.PooledBytes))
	gauge(sparesDesc, float64(now.Spares))
	gauge(goldenDesc, float64(now.Golden))
	gauge(goldenMemDesc, float64(now.GoldenBytes))
	gauge(snapshotsDesc, float64(now.Snapshots))
	gauge(storageDesc, float64(now.SnapshotBytes))
	gauge(usageDesc, now.UsageUnwritten.Seconds())
	gauge(memoryDesc, float64(now.FreeMemoryBytes))
	for _, i := range now.Inflight {
		gauge(heldDesc, float64(i.Held), i.Resource)
		ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(i.Refused), i.Resource)
	}
}
