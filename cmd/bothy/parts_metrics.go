package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/telemetry"
)

// census counts what the server has, for its metrics.
func (p *parts) census(ctx context.Context) (telemetry.Census, error) {
	pool := p.lifecycle.Pool(ctx)
	c := telemetry.Census{
		Sandboxes: map[bothy.State]int{}, FreeMemoryBytes: p.lifecycle.FreeMemoryBytes(), UsageUnwritten: p.meter.Unwritten(),
		Pooled: pool.Ready, PooledBytes: pool.MemoryBytes, Spares: pool.Spares, Golden: pool.Golden, GoldenBytes: pool.GoldenBytes,
	}
	if p.inflight != nil {
		c.Inflight = p.held()
	}
	alive, err := p.store.SandboxesInState(ctx, bothy.LiveStates...)
	if err != nil {
		return c, err
	}
	for _, sb := range alive {
		c.Sandboxes[sb.State]++
	}
	c.Snapshots, c.SnapshotBytes, err = p.store.SnapshotSum(ctx, "")
	return c, err
}

// openMetrics answers scrapes of those who bring a key for it. Where a request
// comes from proves nothing: it may have come through a proxy.
func (p *parts) openMetrics() error {
	h := p.metrics.Handler()
	p.api.Handle("GET /metrics", p.api.Authenticated(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := bothy.RequireOperator(r.Context(), bothy.ScopeMetricsRead); err != nil {
			http.Error(w, bothy.AsError(err).Detail, http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})))
	return p.listenForMetrics(h)
}

// listenForMetrics opens the listener on which metrics need no key.
func (p *parts) listenForMetrics(h http.Handler) error {
	if p.config.MetricsListen == "" {
		return nil
	}
	l, err := net.Listen("tcp", p.config.MetricsListen)
	if err != nil {
		return bothy.Errorf(bothy.CodeConflict, "the address %s (metrics_listen) cannot be listened on", p.config.MetricsListen).
			WithHint("Stop what listens there, or choose another address.").Because(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10}
	p.undo.Add(func() { s.Close() })
	p.log.Info("metrics", "listen", l.Addr().String())
	go func() { _ = s.Serve(l) }()
	return nil
}
